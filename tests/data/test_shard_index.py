"""The index of one shard: what is read, what is refused, with reason and place, and when a kept index is believed."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from rbprune.data import load
from rbprune.data.shard_index import index_tar, load_index, member_names, save_index, split_name, stamp
from rbprune.data.shards import open_shards
from rbprune.errors import DataError
from tests.data.shard_files import jpeg, pairs, write_tar


def link(kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo("b.jpg")
    info.type, info.linkname = kind, "a.jpg"
    return info


def test_offsets_point_at_the_bytes_of_every_image(tmp_path: Path) -> None:
    long = "x" * 150  # needs a header of its own
    members = [("b.cls", b"7\n"), ("a.jpg", jpeg(1)), ("a.cls", b"0"), ("b.PNG", b"png"), (f"{long}.jpeg", b"long")]
    path = write_tar(tmp_path / "x.tar", [*members, (f"{long}.cls", b" 12 ")])
    index = index_tar(path)
    raw = path.read_bytes()
    found = [raw[o : o + n] for o, n in zip(index.offsets, index.sizes, strict=True)]
    assert found == [jpeg(1), b"png", b"long"]
    assert index.labels.tolist() == [0, 7, 12]
    assert [member_names(path)[int(o)] for o in index.offsets] == ["a.jpg", "b.PNG", f"{long}.jpeg"]


def test_dots_in_directories_belong_to_the_key_and_other_fields_are_passed_over(tmp_path: Path) -> None:
    extra = [("a.json", b"{}"), ("README", b"x"), ("._c.jpg", b"mac"), (".hidden", b"x")]
    folder = tarfile.TarInfo("v1.0")
    folder.type = tarfile.DIRTYPE
    path = write_tar(tmp_path / "x.tar", pairs(["v1.0/a", "./v1.1.x/a", "a"], 3) + extra, [folder])
    assert index_tar(path).labels.tolist() == [3, 3, 3]


def test_a_tar_without_members_is_whole(tmp_path: Path) -> None:
    assert len(index_tar(write_tar(tmp_path / "x.tar", [])).labels) == 0


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([*pairs("ab"), ("c.jpg", b"x")], "key 'c' has no .cls (1 such of 3); each example is KEY.jpg and KEY.cls"),
        ([*pairs("ab"), ("c.cls", b"1")], "key 'c' has no image (1 such of 3); each example"),
        ([("a.jpg", b"x"), ("a.cls", b"cat")], "a.cls holds 'cat', which is not a class number; write the class as"),
        ([("a.jpg", b"x"), ("a.cls", b"1.0")], "a.cls holds '1.0', which is not a class number"),
        ([("a.jpg", b"x"), ("a.cls", b"")], "a.cls holds '', which is not a class number"),
        ([("a.jpg", b"x"), ("a.cls", b"-3")], "a.cls holds '-3', which is negative; write the class as an integer"),
        ([("a.jpg", b"x"), ("a.cls", b"9" * 10)], "a.cls holds '9999999999', which is not a class number"),
        ([("a.jpg", b"x"), ("a.cls", "٣".encode())], "which is not a class number"),
        ([("a.jpg", b"x"), ("a.cls", b" " * 99 + b"1")], "a.cls holds '', which is not a class number"),
        (pairs("aba"), "a.jpg is a second image for key 'a'; give every example a key of its own"),
        ([("a.jpg", b"x"), ("a.png", b"x")], "a.png is a second image for key 'a'"),
        ([*pairs("a"), ("a.cls", b"0")], "a.cls is a second label for key 'a'"),
        (pairs(["d.1/a.7"]), "d.1/a.7.jpg is field '7.jpg' of key 'd.1/a'; a key ends at the first dot"),
    ],
)
def test_what_is_no_pair_is_named(members: list[tuple[str, bytes]], message: str, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", members)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        index_tar(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (tarfile.SYMTYPE, "b.jpg is a symbolic link to 'a.jpg'; shards hold plain files"),
        (tarfile.LNKTYPE, "b.jpg is a hard link to 'a.jpg'; shards hold plain files"),
        (tarfile.FIFOTYPE, "b.jpg is of tar type '6'; shards hold plain files"),
    ],
)
def test_links_and_pipes_are_refused(kind: bytes, message: str, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", pairs("a"), [link(kind)])
    with pytest.raises(DataError, match=re.escape(message)):
        index_tar(path)


def test_cut_anywhere_it_is_refused(tmp_path: Path) -> None:
    members = pairs("ab", 1)
    whole = write_tar(tmp_path / "x.tar", members).read_bytes()
    end = sum(512 + -(-len(data) // 512) * 512 for _, data in members)
    path = tmp_path / "cut.tar"
    for length in [*range(1, end, 211), *range(512, end + 1, 512), end + 100]:
        path.write_bytes(whole[:length])
        with pytest.raises(DataError, match="not a whole tar: after byte .*; copy it or write it anew"):
            index_tar(path)
    path.write_bytes(whole[: end + 512])  # one empty block is an end that tar accepts
    assert len(index_tar(path).labels) == 2


def test_damaged_in_the_middle_it_is_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", pairs("abc"))
    raw = bytearray(path.read_bytes())
    at = raw.index(b"b.cls")
    raw[at : at + 300] = b"?" * 300
    path.write_bytes(raw)
    with pytest.raises(DataError, match=rf"after byte {at}: what follows is no header of a member"):
        index_tar(path)


@pytest.mark.parametrize("content", [b"", b"no tar at all", jpeg()])
def test_what_is_no_tar_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(DataError, match="x.tar: not a whole tar"):
        index_tar(tmp_path / "x.tar")


def test_an_image_of_another_field_is_passed_over(tmp_path: Path) -> None:
    members = [*pairs("ab"), ("a.seg.png", b"x"), ("b.0.cls", b"x")]
    assert len(index_tar(write_tar(tmp_path / "x.tar", members)).labels) == 2


@pytest.mark.parametrize(
    ("program", "compress"), [("gzip", gzip.compress), ("bzip2", bz2.compress), ("xz", lzma.compress)]
)
def test_compressed_and_missing_tars_are_explained(
    tmp_path: Path, program: str, compress: Callable[[bytes], bytes]
) -> None:
    path = write_tar(tmp_path / "x.tar", pairs("a"))
    path.write_bytes(compress(path.read_bytes()))
    with pytest.raises(DataError, match=f"x.tar: is compressed by {program}; .*decompress it first"):
        index_tar(path)
    with pytest.raises(DataError, match="none.tar: cannot be read: No such file"):
        index_tar(tmp_path / "none.tar")


def test_sparse_members_are_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a.jpg")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "4096"}
    data = b"1\n0\n8\n".ljust(512, b"\0") + b"contents".ljust(512, b"\0")
    info.size = len(data)
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(data))
    with pytest.raises(DataError, match=r"a.jpg is a sparse file; shards hold plain files"):
        index_tar(tmp_path / "x.tar")


def test_the_index_is_written_once_and_believed_while_it_fits(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_shards(shards)
    assert set(load_index(shards, "train")) == {f"train-{i:06d}.tar" for i in range(3)}
    walked: list[str] = []

    def count(path: Path) -> object:
        walked.append(path.name)
        return index_tar(path)

    monkeypatch.setattr("rbprune.data.shards.index_tar", count)
    again = open_shards(shards)
    assert walked == []
    assert (again[0].offsets == first[0].offsets).all() and torch.equal(again[0].labels, first[0].labels)
    write_tar(shards / "train-000001.tar", pairs(["new/a"], 1))
    assert len(open_shards(shards)[0].labels) == 7
    assert walked == ["train-000001.tar"], "a tar of another length"
    same_length = pairs(["new/b"], 2)
    write_tar(shards / "train-000001.tar", same_length)
    assert open_shards(shards)[0].labels.tolist() == [0, 0, 0, 2, 2, 2, 2]
    assert walked == ["train-000001.tar"] * 2, "a tar of the same length with another beginning"
    open_shards(shards)
    assert len(walked) == 2
    write_tar(shards / "train-000001.tar", [same_length[0], ("new/b.cls", b"1")])
    assert open_shards(shards)[0].labels.tolist() == [0, 0, 0, 1, 2, 2, 2], "another label in the same place"


@pytest.mark.parametrize("content", [b"", b"junk", None])
def test_a_damaged_index_is_made_anew(shards: Path, content: bytes | None) -> None:
    first = open_shards(shards)[0]
    file = shards / "train.index.npz"
    file.write_bytes(file.read_bytes()[:-200] if content is None else content)
    again = open_shards(shards)[0]
    assert (again.offsets == first.offsets).all()
    assert len(load_index(shards, "train")) == 3


def test_a_kept_index_is_what_was_found(shards: Path) -> None:
    found = {path.name: (stamp(path), index_tar(path)) for path in sorted(shards.glob("train-*.tar"))}
    save_index(shards, "train", found)
    kept = load_index(shards, "train")
    assert list(kept) == list(found)
    for name, (mark, index) in found.items():
        assert kept[name][0] == mark
        for one, other in zip(vars(kept[name][1]).values(), vars(index).values(), strict=True):
            assert one.tolist() == other.tolist()


def test_an_index_that_points_beyond_its_tar_is_not_believed(shards: Path) -> None:
    path = shards / "train-000000.tar"
    (size, written, head), index = stamp(path), index_tar(path)
    save_index(shards, "train", {path.name: ((size, written, head), index)})
    assert load_index(shards, "train")
    save_index(shards, "train", {path.name: ((int(index.offsets[-1]), written, head), index)})
    assert load_index(shards, "train") == {}


def test_a_stamp_tells_tars_apart_by_length_time_and_beginning(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar", pairs("a"))
    first = stamp(path)
    assert first[0] == path.stat().st_size and stamp(path) == first
    raw = bytearray(path.read_bytes())
    raw[700] ^= 1
    path.write_bytes(raw)
    assert stamp(path)[2] != first[2]
    with pytest.raises(DataError, match="none.tar: cannot be read: No such file"):
        stamp(tmp_path / "none.tar")


def test_a_key_ends_at_the_first_dot_of_the_file_name() -> None:
    assert split_name("a.b/c.d.JPG") == ("a.b/c", "d.jpg")
    assert split_name("c") == ("c", "")


def test_an_index_that_promises_too_much_is_not_believed(shards: Path) -> None:
    """The tars are walked instead; nothing of the size that it promises is ever made."""
    labels = open_shards(shards)[0].labels
    file = shards / "train.index.npz"
    raw = file.read_bytes()
    for change in (
        raw.replace(b"'shape': (3, 9), }      ", b"'shape': (3, 2**60), }  "),
        raw.replace(b"'shape': (3, 9), }               ", b"'shape': (3, 900000000000), }    "),
        raw.replace(b"'descr': '<i8'", b"'descr': '|O8'"),
        compressed(raw),
    ):
        assert change != raw
        file.write_bytes(change)
        assert load_index(shards, "train") == {}
        assert torch.equal(open_shards(shards)[0].labels, labels)


def compressed(raw: bytes) -> bytes:
    """The same arrays in a zip that is compressed, so that a short file could hold very long ones."""
    with np.load(io.BytesIO(raw)) as content:
        arrays = dict(content)
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def test_a_pipe_for_a_tar_is_not_waited_for(shards: Path) -> None:
    (shards / "train-000001.tar").unlink()
    os.mkfifo(shards / "train-000001.tar")
    with pytest.raises(DataError, match=r"train-000001.tar: is a pipe \(FIFO\), not a plain file"):
        load("shards", shards)


def test_names_of_members_stay_on_their_line(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", [("x\ny\x1b[2J.jpg", jpeg())])
    with pytest.raises(DataError) as caught:
        index_tar(tar)
    assert "\\n" in str(caught.value) and not {"\n", "\x1b"} & set(str(caught.value))
