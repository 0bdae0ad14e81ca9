"""Images in folders, one folder per class: ``path/train/<class>/*.jpg`` and ``path/val/<class>/*.jpg``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from rbprune.data.traits import IMAGENET_MEAN, IMAGENET_STD
from rbprune.errors import DataError
from rbprune.models.compat import import_torchvision

ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp"})
LAYOUT = "expected DIR/train/<class>/*.jpg and DIR/val/<class>/*.jpg, with DIR named by --set data.path=DIR"


class ImageFolder(Dataset[tuple[Tensor, int]]):
    """The images below one folder; the label is the place of the class folder's name in sorted order."""

    def __init__(self, files: list[Path], labels: Tensor, *, size: int, augment: bool) -> None:
        self.files, self.labels, self.size, self.augment = files, labels, size, augment

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        file = self.files[index]
        try:
            with Image.open(file) as image:
                pixels = image.convert("RGB")
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as cause:
            raise DataError(f"{file}: not a readable image: {cause}; replace or remove the file") from cause
        return transform(self.size, self.augment)(pixels), int(self.labels[index])


@lru_cache
def transform(size: int, augment: bool) -> Callable[[Image.Image], Tensor]:
    """Resize to 256/224 of ``size``, crop (at random and mirrored when augmenting, else the centre), normalise."""
    import_torchvision()
    v2 = importlib.import_module("torchvision.transforms.v2")
    larger = round(size * 256 / 224)
    crop = [v2.RandomCrop(size), v2.RandomHorizontalFlip()] if augment else [v2.CenterCrop(size)]
    composed: Callable[[Image.Image], Tensor] = v2.Compose(
        [
            v2.Resize((larger, larger)),
            *crop,
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )
    return composed


def list_classes(path: Path) -> list[str]:
    """The class names, which ``train`` and ``val`` must share."""
    for part in ("train", "val"):
        if not (path / part).is_dir():
            inside = sorted(p.name for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
            found = f"it holds {', '.join(inside[:5])}{', ...' if len(inside) > 5 else ''}" if inside else "it is empty"
            found = found if path.is_dir() else "it does not exist"
            raise DataError(f"folder: no {part!r} folder in {path} ({found}); {LAYOUT}")
    train, val = ({p.name for p in (path / part).iterdir() if p.is_dir()} for part in ("train", "val"))
    if train != val:
        only = {"train": sorted(train - val), "val": sorted(val - train)}
        listed = "; ".join(f"only in {part}: {', '.join(names[:10])}" for part, names in only.items() if names)
        raise DataError(f"folder: {path}/train and {path}/val have different classes ({listed}); make them the same")
    if not train:
        raise DataError(f"folder: no class folders in {path}/train; {LAYOUT}")
    return sorted(train)


def list_images(folder: Path, classes: list[str]) -> tuple[list[Path], Tensor]:
    """Every image file of every class, in sorted order, and its label."""
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        found = sorted(f for f in (folder / name).iterdir() if f.suffix.lower() in ENDINGS)
        if not found:
            endings = ", ".join(sorted(ENDINGS))
            raise DataError(f"folder: no image ({endings}) in {folder / name}; add some or remove the class")
        files += found
        labels += [label] * len(found)
    return files, torch.tensor(labels)
