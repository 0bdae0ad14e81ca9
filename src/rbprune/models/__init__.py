"""Models by name, and their weights."""

from __future__ import annotations

from rbprune.models.registry import ZOO, build, example_input
from rbprune.models.weights import load_weights
from rbprune.utils.torchvision import import_torchvision

__all__ = ["ZOO", "build", "example_input", "import_torchvision", "load_weights"]
