from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rbprune.errors import ConfigError, ModelError
from rbprune.utils.extras import import_extra


def test_the_first_module_that_is_installed_is_taken() -> None:
    assert import_extra("no_such_package.part", "json", extra="x").__name__ == "json"


def test_a_missing_package_is_named_with_the_extra_that_brings_it() -> None:
    with pytest.raises(ModelError, match=r"no_such_package is not installed; pip install 'rbprune\[some\]'"):
        import_extra("no_such_package.part", extra="some", error=ModelError)


def test_a_package_that_misses_another_one_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="needs_more cannot be imported.*; pip install no_such_package"):
        import_extra("needs_more", extra="some")
    assert "needs_more" not in sys.modules
