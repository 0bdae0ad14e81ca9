from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rbprune.errors import DataError, ModelError
from rbprune.utils.imports import find, is_spec


def test_a_file_sees_its_neighbours_and_leaves_the_path_alone(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 3")
    (tmp_path / "net.py").write_text("import beside\ndef make():\n    import beside\n    return beside.VALUE\n")
    before = list(sys.path)
    assert find(f"{tmp_path}/net.py:make")() == 3
    assert sys.path == before


def test_an_unchanged_file_is_run_once_and_an_edited_one_again(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("def make(): return 1\n")
    assert find(f"{file}:make").module is find(f"{file}:make").module
    before = file.stat()
    file.write_text("def make(): return 2\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # within one tick of the clock
    assert find(f"{file}:make")() == 2


def test_a_module_of_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text("def make(): return 4\n")
    monkeypatch.chdir(tmp_path)
    assert find("only_here:make")() == 4
    assert find("only_here.py:make")() == 4


@pytest.mark.parametrize(
    ("signature", "accepted"),
    [("classes", True), ("*, classes=3", True), ("**options", True), ("", False), ("classes, /", False), ("n", False)],
)
def test_accepts_tells_whether_a_keyword_can_be_given(tmp_path: Path, signature: str, accepted: bool) -> None:
    (tmp_path / "net.py").write_text(f"def make({signature}): return 1\n")
    assert find(f"{tmp_path}/net.py:make").accepts("classes") is accepted


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("net.py:", "does not name a function; write 'package.module:factory'"),
        (":make", "does not name a function"),
        ("net.py:a-b", "does not name a function"),
        ("nowhere/net.py:make", "there is no file .*nowhere/net.py"),
        ("no_such_package.nets:make", "importing no_such_package.nets failed: ModuleNotFoundError.*install it"),
        ("math:hypott", r"math has no function 'hypott'; did you mean 'hypot'\?"),
    ],
)
def test_what_cannot_be_found_is_named(spec: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        find(spec, error=ModelError)


def test_a_file_that_fails_is_named_and_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("1 / 0\n")
    before = set(sys.modules)
    with pytest.raises(DataError, match=r"importing .*net\.py failed: ZeroDivisionError: division by zero"):
        find(f"{file}:make", error=DataError)
    assert set(sys.modules) == before


def test_only_a_name_with_a_colon_is_a_spec() -> None:
    assert is_spec("a.b:c") and not is_spec("resnet20-cifar")
