"""Importing Ultralytics, which needs a torchvision that works."""

from __future__ import annotations

import importlib
from types import ModuleType

from rbprune.errors import ConfigError
from rbprune.utils.torchvision import import_torchvision


def import_ultralytics() -> ModuleType:
    """The package ``ultralytics``; refused by name where it is not installed.

    Where torchvision has no compiled part that fits the installed torch, its non-maximum suppression is replaced by the
    one that Ultralytics brings, which gives the same boxes; everywhere else nothing is changed.
    """
    vision = import_torchvision()
    try:
        package = importlib.import_module("ultralytics")
    except ModuleNotFoundError as cause:
        if cause.name != "ultralytics":
            raise ConfigError(f"ultralytics cannot be imported: {cause}; pip install {cause.name}") from cause
        raise ConfigError("ultralytics is not installed; pip install 'rbprune[ultralytics]'") from cause
    if not vision.extension._has_ops():
        vision.ops.nms = importlib.import_module("ultralytics.utils.nms").TorchNMS.nms
    return package
