from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rbprune.data.restricted_pickle import read_plain_pickle
from rbprune.errors import DataError


class Call:
    """Pickles as a call of any function, the way an attack does."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_plain_content_is_read(tmp_path: Path, protocol: int) -> None:
    file = tmp_path / "file"
    values = np.arange(12, dtype=np.uint8).reshape(3, 4)
    file.write_bytes(pickle.dumps({"data": values, "labels": [1, 2], "name": "x"}, protocol=protocol))
    content = read_plain_pickle(file)
    assert np.array_equal(content.pop("data"), values)
    assert content == {"labels": [1, 2], "name": "x"}


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("function", [os.system, eval, np.load, getattr, np.ndarray.__reduce__])
def test_a_file_that_calls_something_is_refused_by_name(tmp_path: Path, function: Any, protocol: int) -> None:
    file, trace = tmp_path / "file", tmp_path / "trace"
    file.write_bytes(pickle.dumps({"data": Call(function, f"touch {trace}")}, protocol=protocol))
    with pytest.raises(DataError, match=r"file: refers to .*nothing was run") as caught:
        read_plain_pickle(file)
    name = "getattr" if function is np.ndarray.__reduce__ else function.__name__
    assert f".{name}" in str(caught.value)
    assert not trace.exists()


@pytest.mark.parametrize(
    "value",
    [
        Call(np.ndarray, (2,)),
        Call(np.dtype, "O"),
        np.array([{}, []], dtype=object),
        np.zeros(3, np.int64),
    ],
)
def test_allowed_names_make_nothing_but_bytes(tmp_path: Path, value: Any) -> None:
    file = tmp_path / "file"
    file.write_bytes(pickle.dumps(value, protocol=2))
    with pytest.raises(DataError):
        read_plain_pickle(file)


def test_text_is_encoded_as_latin1_only(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"c_codecs\nencode\n(Vtext\nVrot13\ntR.")
    with pytest.raises(DataError, match="encoding 'rot13'"):
        read_plain_pickle(file)


@pytest.mark.parametrize("keep", [0, 20, 60])
def test_a_file_cut_short_is_named(tmp_path: Path, keep: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(pickle.dumps({"data": np.zeros(99, np.uint8)}, protocol=2)[:keep])
    with pytest.raises(DataError, match=f"file: damaged, cannot be read after {keep} bytes"):
        read_plain_pickle(file)


def test_a_note_with_a_huge_number_makes_no_room_for_as_many(tmp_path: Path) -> None:
    """The reader of Python would fill 64 GB."""
    (tmp_path / "file").write_bytes(b"\x80\x02}r\xff\xff\xff\xff.")
    with pytest.raises(DataError, match="damaged.*note number 4294967295 after"):
        read_plain_pickle(tmp_path / "file")
