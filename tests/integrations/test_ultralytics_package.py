from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from rbprune.errors import ConfigError
from rbprune.integrations.ultralytics_package import import_ultralytics


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("ultralytics", r"ultralytics is not installed; pip install 'rbprune\[ultralytics\]'"),
        ("cv2", "ultralytics cannot be imported: No module named 'cv2'; pip install cv2"),
    ],
)
def test_what_is_missing_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: str, told: str
) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name == "ultralytics":
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ConfigError, match=told):
        import_ultralytics()


def test_boxes_that_overlap_are_suppressed_whatever_torchvision_is_installed() -> None:
    import_ultralytics()
    import torchvision

    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    kept = torchvision.ops.nms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.5)
    assert kept.tolist() == [1, 2]
