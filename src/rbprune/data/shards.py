"""Images in WebDataset shards, ``path/train-000000.tar`` and so on, read at random as if they were files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rbprune.data.shard_index import LAYOUT, read_part
from rbprune.data.tar_index import TarIndex, member_names
from rbprune.errors import DataError

CLASSES = "classes.json"


class ShardStore:
    """The images of several tars. Nothing is kept open, so that processes share nothing."""

    def __init__(self, shards: list[tuple[Path, TarIndex]]) -> None:
        self.paths = [path for path, _ in shards]
        self.shard = np.repeat(np.arange(len(shards)), [len(index.labels) for _, index in shards])
        self.offsets = np.concatenate([index.offsets for _, index in shards])
        self.sizes = np.concatenate([index.sizes for _, index in shards])
        self.labels: Tensor = torch.from_numpy(np.concatenate([index.labels for _, index in shards]))

    def read(self, index: int) -> bytes:
        """The file of one image."""
        path, size, offset = self.paths[self.shard[index]], int(self.sizes[index]), int(self.offsets[index])
        try:
            file = os.open(path, os.O_RDONLY)
            try:
                data = _read(file, size, offset)
            finally:
                os.close(file)
        except OSError as cause:
            raise DataError(f"{path}: cannot be read: {cause.strerror}; check the disk and who may read it") from cause
        if len(data) < size:
            raise DataError(
                f"{path}: ends within the member at byte {offset}, {size - len(data)} of its {size} bytes are missing; "
                "copy the tar or write it anew"
            )
        return data

    def where(self, index: int) -> str:
        """Its tar and name there, for people."""
        path, offset = self.paths[self.shard[index]], int(self.offsets[index])
        return f"{path}, member {member_names(path).get(offset, f'at byte {offset}')}"


def _read(file: int, size: int, offset: int) -> bytes:
    data = os.pread(file, size, offset)
    while 0 < len(data) < size and (more := os.pread(file, size - len(data), offset + len(data))):
        data += more  # one call gives 2 GiB at most
    return data


def open_shards(path: Path) -> tuple[ShardStore, ShardStore, int]:
    """The images of ``train`` and ``val``, and the number of classes: that of classes.json, or else of the labels."""
    parts = {part: read_part(path, part) for part in ("train", "val")}
    for part, shards in parts.items():
        if not any(len(index.labels) for _, index in shards):
            raise DataError(f"shards: no image in the {len(shards)} shards {path}/{part}-*.tar; {LAYOUT}")
    names = read_classes(path / CLASSES)
    classes = len(names) if names is not None else 1 + max(_largest(shards)[0] for shards in parts.values())
    for shards in parts.values():
        label, tar = _largest(shards)
        if label >= classes:
            raise DataError(
                f"{tar}: label {label}, but {path / CLASSES} names {classes} classes (labels 0 to {classes - 1}); "
                "write the shards anew, or correct that file"
            )
    return ShardStore(parts["train"]), ShardStore(parts["val"]), classes


def _largest(shards: list[tuple[Path, TarIndex]]) -> tuple[int, Path]:
    return max((int(index.labels.max()), path) for path, index in shards if len(index.labels))


def read_classes(path: Path) -> list[str] | None:
    """The names of the classes in the order of their labels, where they are given."""
    if not path.is_file():
        return None
    try:
        names = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as cause:
        raise DataError(f"{path}: not JSON: {cause}; write a list of class names, or remove the file") from cause
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}: not a list of class names but {str(names)[:60]!r}; write one, or remove the file")
    return names
