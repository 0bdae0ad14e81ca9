"""Images in folders, one folder per class: ``path/train/<class>/*.jpg`` and ``path/val/<class>/*.jpg``."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from rbprune.data.image import IMAGE_ENDINGS, MOST_BYTES
from rbprune.errors import DataError
from rbprune.utils.names import printable
from rbprune.utils.plain_file import read_plain, why_not_plain

LAYOUT = "expected DIR/train/<class>/*.jpg and DIR/val/<class>/*.jpg"


class FolderStore:
    """The images of a folder, as their files and their labels."""

    def __init__(self, files: list[Path], labels: Tensor) -> None:
        self.files, self.labels = files, labels

    def read(self, index: int) -> bytes:
        """The bytes of the image at ``index``, as its file holds them."""
        return read_plain(self.files[index], DataError, most=MOST_BYTES)

    def where(self, index: int) -> str:
        """The path of the image at ``index``, for messages."""
        return printable(self.files[index])


def open_folder(path: Path) -> tuple[FolderStore, FolderStore, int]:
    """The images of ``train`` and ``val``, and the number of classes; labels follow the sorted class names."""
    classes = list_classes(path)
    train, val = (FolderStore(*list_images(path / part, classes)) for part in ("train", "val"))
    return train, val, len(classes)


def list_classes(path: Path) -> list[str]:
    """The class names, which ``train`` and ``val`` must share."""
    for part in ("train", "val"):
        if not (path / part).is_dir():
            inside = sorted(p.name for p in path.iterdir() if p.is_dir()) if path.is_dir() else []
            found = (
                f"it holds {', '.join(map(printable, inside[:5]))}{', ...' if len(inside) > 5 else ''}"
                if inside
                else "it is empty"
            )
            found = found if path.is_dir() else "it does not exist"
            raise DataError(f"folder: no {part!r} folder in {path} ({found}); {LAYOUT}")
    train, val = ({p.name for p in (path / part).iterdir() if p.is_dir()} for part in ("train", "val"))
    if train != val:
        only = {"train": sorted(train - val), "val": sorted(val - train)}
        listed = "; ".join(
            f"only in {part}: {', '.join(map(printable, names[:10]))}" for part, names in only.items() if names
        )
        raise DataError(f"folder: {path}/train and {path}/val have different classes ({listed}); make them the same")
    if not train:
        raise DataError(f"folder: no class folders in {path}/train; {LAYOUT}")
    return sorted(train)


def list_images(folder: Path, classes: list[str]) -> tuple[list[Path], Tensor]:
    """Every image file of every class, in sorted order, and its label."""
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        with os.scandir(folder / name) as entries:  # which knows the folders without asking for each
            listed = list(entries)
        inside = {Path(entry.path): entry.is_dir() for entry in listed}
        _refuse_special([entry for entry in listed if _is_image(Path(entry.path))])
        _refuse_nested([path for path, is_folder in inside.items() if is_folder])
        found = sorted(path for path, is_folder in inside.items() if _is_image(path) and not is_folder)
        if not found:
            endings = ", ".join(sorted(IMAGE_ENDINGS))
            raise DataError(f"folder: no image ({endings}) in {printable(folder / name)}; add some or remove the class")
        files += found
        labels += [label] * len(found)
    return files, torch.tensor(labels)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_ENDINGS


def _refuse_special(entries: list[os.DirEntry[str]]) -> None:
    """Refuse what is called an image and is no plain file, nor a link to one: reading it might never end."""
    for entry in entries:
        if entry.is_file() or entry.is_dir():
            continue
        try:
            what = why_not_plain(entry.stat().st_mode)
        except OSError as cause:
            why = f"cannot be read: {cause.strerror}; mend the link, or remove it"
            raise DataError(f"folder: {printable(entry.path)}: {why}") from cause
        raise DataError(f"folder: {printable(entry.path)} is {what}, not an image; remove it")


def _refuse_nested(folders: list[Path]) -> None:
    """Refuse images further down, which would be left out without anybody noticing."""
    for folder in folders:
        nested = next((path for path in folder.rglob("*") if _is_image(path) and not path.is_dir()), None)
        if nested is not None:
            why = "lies too deep: only images directly in a class folder are read; move it up"
            raise DataError(f"folder: {printable(nested)} {why}")
