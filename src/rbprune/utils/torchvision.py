"""Importing torchvision where its compiled part does not fit the installed torch (a CPU torch, a CUDA torchvision)."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

from rbprune.errors import ModelError

_library: torch.library.Library | None = None  # its definitions vanish when it is collected


def import_torchvision() -> ModuleType:
    """The torchvision module, with the operator schemas it misses defined if, and only if, its import fails.

    >>> import_torchvision().__name__
    'torchvision'
    """
    try:
        return importlib.import_module("torchvision")
    except ModuleNotFoundError as cause:
        if cause.name != "torchvision":
            raise ModelError(f"torchvision cannot be imported: {cause}; pip install {cause.name}") from cause
        raise ModelError("torchvision is not installed; pip install torchvision") from cause
    except RuntimeError as cause:
        if "torchvision::nms" not in str(cause):
            raise ModelError(f"torchvision cannot be imported: {cause}; {_mismatch()}") from cause
    _define_schemas()
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # the failed import leaves half-made submodules behind
    try:
        return importlib.import_module("torchvision")
    except Exception as cause:
        raise ModelError(f"torchvision cannot be imported: {cause}; {_mismatch()}") from cause


def _define_schemas() -> None:
    global _library
    if _library is None:
        _library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call, unused-ignore]
        for operator in ("nms", "qnms"):
            schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            _library.define(schema)  # type: ignore[no-untyped-call, unused-ignore]


def _mismatch() -> str:
    return f"pip install torchvision in the version made for torch {torch.__version__}"
