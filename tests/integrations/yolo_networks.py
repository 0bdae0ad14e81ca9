"""Networks of Ultralytics for two classes, with random weights, and images drawn by the example."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rbprune.integrations.ultralytics_package import import_ultralytics

EXAMPLE = Path(__file__).parents[2] / "examples" / "yolo.py"
NETWORKS = ("yolov8n", "yolo11n", "yolov8n-seg", "yolo11n-seg")
QUIET: dict[str, Any] = {"imgsz": 64, "batch": 8, "plots": False, "amp": False, "verbose": False, "workers": 0}


def quiet_environment(folder: Path) -> dict[str, str]:
    """Variables that keep what Ultralytics and matplotlib write in a folder, and both of them off the network."""
    (folder / "Ultralytics").mkdir()
    (folder / "Ultralytics" / "Arial.ttf").touch()  # a font that it would download; nothing is drawn
    home = {"YOLO_CONFIG_DIR": str(folder), "MPLCONFIGDIR": str(folder)}
    return {**home, "YOLO_OFFLINE": "1", "YOLO_AUTOINSTALL": "0"}


def make_yolo(name: str = "yolov8n", classes: int = 2) -> Any:
    """A ``YOLO`` as ``YOLO("yolov8n.yaml")`` makes it, but for so many classes."""
    torch.manual_seed(0)
    yolo = import_ultralytics().YOLO(f"{name}.yaml")
    if classes != 80:
        new = type(yolo.model)(yolo.cfg, nc=classes, verbose=False)
        new.args, new.task, yolo.model = yolo.model.args, yolo.task, new
    return yolo


def draw_shapes(folder: Path, *, images: int = 16, segment: bool = False) -> str:
    """Images of 64 x 64 with rectangles and discs; returns the ``data.yaml``."""
    spec = importlib.util.spec_from_file_location("yolo_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return str(example.draw(folder, images, 64, segment=segment))


def random_statistics(model: nn.Module) -> nn.Module:
    """The model with statistics of batch normalisation other than those of a new one, so that every channel counts."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.3)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.3)
    return model
