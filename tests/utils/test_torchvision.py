from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
import torch

from rbprune.errors import ModelError
from rbprune.utils import torchvision


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torchvision_works_even_after_a_failed_import() -> None:
    out = run(
        "import contextlib\n"
        "with contextlib.suppress(RuntimeError):\n    import torchvision\n"
        "from rbprune.utils.torchvision import import_torchvision\n"
        "first, second = import_torchvision(), import_torchvision()\n"
        "from torchvision.transforms import v2\nimport torchvision\n"
        "print(first is second is torchvision, hasattr(v2, 'RandomCrop'), hasattr(torchvision.models, 'resnet18'))"
    )
    assert out.split() == ["True"] * 3


def test_nothing_is_defined_where_the_import_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision, "_library", None)
    monkeypatch.setattr(importlib, "import_module", lambda name: torch)
    assert torchvision.import_torchvision() is torch
    assert torchvision._library is None


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (ModuleNotFoundError("no", name="torchvision"), "torchvision is not installed; pip install torchvision"),
        (ModuleNotFoundError("no PIL", name="PIL"), "cannot be imported: no PIL; pip install PIL"),
        (RuntimeError("something else"), "something else; pip install torchvision in the version made for torch"),
    ],
)
def test_other_failures_name_what_to_install(monkeypatch: pytest.MonkeyPatch, cause: Exception, message: str) -> None:
    def fail(name: str) -> None:
        raise cause

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(ModelError, match=message):
        torchvision.import_torchvision()
