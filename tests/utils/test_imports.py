from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rbprune.errors import DataError, ModelError
from rbprune.utils.imports import find, is_spec, locate


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
        ("torch.nn:Lineer", r"torch.nn has no function 'Lineer'; did you mean 'Linear'\?"),
        ("a\0b.py:make", "is no path"),
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


@pytest.mark.parametrize(
    "spec",
    ["os:system", "posix:system", "subprocess:run", "builtins:eval", "os.path:join", "runpy:run_path", "__main__:main"],
)
def test_nothing_of_python_itself_is_a_factory(spec: str) -> None:
    with pytest.raises(ModelError, match=r"is a module of Python itself.*nothing was run; name your own"):
        find(spec, error=ModelError)


def test_what_a_module_only_passes_on_is_refused_with_the_place_that_defines_it(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "import functools\nfrom os import system\nfrom torch.nn import Linear\nmade = functools.partial(Linear, 2)\n"
        "class Net:\n    def __call__(self): return 2\nnet = Net()\n"
    )
    with pytest.raises(
        ModelError, match=r"does not define 'system' itself: it is posix.system; nothing was run; write"
    ):
        find(f"{tmp_path}/net.py:system", error=ModelError)
    with pytest.raises(ModelError, match=r"it is torch.nn.modules.linear.Linear; .*as torch.nn.modules.linear:Linear"):
        find(f"{tmp_path}/net.py:Linear", error=ModelError)
    with pytest.raises(ModelError, match=r"it is functools.partial; .*write a function of .*def made"):
        find(f"{tmp_path}/net.py:made", error=ModelError)
    with pytest.raises(ModelError, match=r"it is torch.nn.modules.linear.Linear"):
        find("torch.nn:Linear", error=ModelError)
    assert find(f"{tmp_path}/net.py:net")() == 2
    assert find("torch.nn.modules.linear:Linear")(2, 3).in_features == 2


def test_without_installed_packages_a_library_is_handed_nothing_from_a_recipe() -> None:
    """``torch.utils.collect_env:run`` gives its argument to a shell."""
    with pytest.raises(DataError, match=r"torch.utils.collect_env is an installed package .*write a function of your"):
        find("torch.utils.collect_env:run", error=DataError, installed=False)


def test_code_is_located_without_being_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "never_run").mkdir()
    (tmp_path / "never_run" / "__init__.py").write_text("raise SystemExit('it ran')\n")
    (tmp_path / "never_run" / "deep.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    assert locate("never_run.deep:make") == tmp_path / "never_run" / "__init__.py"
    assert locate("never_run/deep.py:make") == tmp_path / "never_run" / "deep.py"
    with pytest.raises(ModelError, match="there is no module no_such"):
        locate("no_such.deep:make", error=ModelError)
