"""Images in WebDataset shards, ``path/train-000000.tar`` and so on, read at random as if they were files.

``train.json`` is WebDataset's own list of shards (wids): where it is there, exactly those shards must be.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rbprune.data.image import MOST_BYTES
from rbprune.data.shard_index import (
    IndexedShards,
    Stamp,
    TarIndex,
    index_tar,
    load_index,
    member_names,
    save_index,
    stamp,
)
from rbprune.errors import DataError
from rbprune.utils.files import write_atomic
from rbprune.utils.names import printable
from rbprune.utils.plain_file import open_plain, read_plain

KIND = "wids-shard-index-v1"
"""How WebDataset marks a list of shards."""
REQUEST = "shards.json"
"""Written first by ``rbprune shard``; the lists of shards come last, so without them the folder is not complete."""
CLASSES = "classes.json"
"""The names of the classes in the order of their labels."""
LAYOUT = "expected DIR/train-000000.tar, ... and DIR/val-000000.tar, ..., as 'rbprune shard SRC --out DIR' writes them"


class ShardStore:
    """The images of several shards; no file stays open, so that processes share nothing."""

    def __init__(self, shards: list[tuple[Path, TarIndex]]) -> None:
        self.paths = [path for path, _ in shards]
        self.shard = np.repeat(np.arange(len(shards)), [len(index.labels) for _, index in shards])
        self.offsets = np.concatenate([index.offsets for _, index in shards])
        self.sizes = np.concatenate([index.sizes for _, index in shards])
        self.labels: Tensor = torch.from_numpy(np.concatenate([index.labels for _, index in shards]))

    def read(self, index: int) -> bytes:
        """The bytes of the image at ``index``, as its file held them."""
        path, size, offset = self.paths[self.shard[index]], int(self.sizes[index]), int(self.offsets[index])
        if size > MOST_BYTES:
            raise DataError(f"{self.where(index)}: has {size:,} bytes, which no image has; write the shard anew")
        with open_plain(path, DataError) as file:
            try:
                data = _read_whole(file.fileno(), size, offset)
            except OSError as cause:
                why = f"{cause.strerror}; check the disk and who may read it"
                raise DataError(f"{path}: cannot be read: {why}") from cause
        if len(data) < size:
            raise DataError(
                f"{path}: ends within the member at byte {offset}, {size - len(data)} of its {size} bytes are missing; "
                "copy the tar or write it anew"
            )
        return data

    def where(self, index: int) -> str:
        """The shard and the member of the image at ``index``, for messages."""
        path, offset = self.paths[self.shard[index]], int(self.offsets[index])
        return f"{printable(path)}, member {printable(member_names(path).get(offset, f'at byte {offset}'))}"


def _read_whole(file: int, size: int, offset: int) -> bytes:
    """``size`` bytes from ``offset`` on, or fewer where the file ends before."""
    data = os.pread(file, size, offset)
    while 0 < len(data) < size and (more := os.pread(file, size - len(data), offset + len(data))):
        data += more  # one call gives 2 GiB at most
    return data


def open_shards(path: Path) -> tuple[ShardStore, ShardStore, int]:
    """The images of ``train`` and ``val``, and the number of classes: that of classes.json, or else of the labels."""
    parts = {part: index_part(path, part) for part in ("train", "val")}
    for part, shards in parts.items():
        if not any(len(index.labels) for _, index in shards):
            raise DataError(f"shards: no image in the {len(shards)} shards {path}/{part}-*.tar; {LAYOUT}")
    names = read_classes(path / CLASSES)
    classes = len(names) if names is not None else 1 + max(_largest_label(shards)[0] for shards in parts.values())
    for shards in parts.values():
        label, tar = _largest_label(shards)
        if label >= classes:
            raise DataError(
                f"{tar}: label {label}, but {path / CLASSES} names {classes} classes (labels 0 to {classes - 1}); "
                "write the shards anew, or correct that file"
            )
    return ShardStore(parts["train"]), ShardStore(parts["val"]), classes


def _largest_label(shards: list[tuple[Path, TarIndex]]) -> tuple[int, Path]:
    """The largest label, and a shard that holds it."""
    return max((int(index.labels.max()), path) for path, index in shards if len(index.labels))


def read_classes(path: Path) -> list[str] | None:
    """The names of the classes in the order of their labels, or None without such a file."""
    if not path.is_file():
        return None
    try:
        names = json.loads(read_plain(path, DataError))
    except (ValueError, RecursionError) as cause:
        raise DataError(f"{path}: not JSON: {cause}; write a list of class names, or remove the file") from cause
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise DataError(f"{path}: not a list of class names but {str(names)[:60]!r}; write one, or remove the file")
    return names


def index_part(folder: Path, part: str) -> list[tuple[Path, TarIndex]]:
    """Every shard of a part with its index; the indices that had to be made are kept for the next time."""
    known = load_index(folder, part)
    found: dict[str, tuple[Stamp, TarIndex]] = {}
    for path in list_shards(folder, part):
        now = stamp(path)
        before = known.get(path.name)
        found[path.name] = before if before is not None and before[0] == now else (now, index_tar(path))
    if any(known.get(name) is not entry for name, entry in found.items()):
        with contextlib.suppress(OSError):  # it may not be ours to write to
            save_index(folder, part, found)
    return [(folder / name, index) for name, (_, index) in found.items()]


def list_shards(folder: Path, part: str) -> list[Path]:
    """The tars of a part in order of their numbers; an incomplete set is an error."""
    inside = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    names = [name for name in inside if re.fullmatch(rf"{part}-\d+\.tar", name)]
    listed = _listed(folder / f"{part}.json")
    if listed is None and REQUEST in inside:
        raise DataError(f"shards: {folder} is not complete; call the same 'rbprune shard ... --out {folder}' again")
    if listed is not None and set(listed) != set(names):
        missing, extra = sorted(set(listed) - set(names)), sorted(set(names) - set(listed))
        first = printable((missing or extra)[0])
        what = f"{first} is missing ({len(missing)} such)" if missing else f"{first} is too many"
        raise DataError(
            f"shards: {folder / part}.json lists {len(listed)} shards, and {what}; copy the whole folder anew"
        )
    if not names:
        some = f"{', '.join(map(printable, inside[:5]))}{', ...' if len(inside) > 5 else ''}"
        held = f"it holds {some}" if inside else "it is empty"
        held = held if folder.is_dir() else "it does not exist"
        raise DataError(f"shards: no {part}-*.tar in {folder} ({held}); {LAYOUT}")
    return [folder / name for name in sorted(names, key=lambda name: (int(name[len(part) + 1 : -4]), name))]


def write_list(folder: Path, part: str, shards: IndexedShards) -> None:
    """Write ``PART.json``, the list of shards, by which a reader knows that all are there."""
    listed = [
        {"url": name, "nsamples": len(index.labels), "filesize": size} for name, ((size, *_), index) in shards.items()
    ]
    content = {"__kind__": KIND, "wids_version": 1, "name": part, "shardlist": listed}
    write_atomic(folder / f"{part}.json", json.dumps(content, indent=1) + "\n")


def _listed(path: Path) -> list[str] | None:
    """The names of the shards in such a list, or None without it."""
    if not path.is_file():
        return None
    try:
        content = json.loads(read_plain(path, DataError))
        if content["__kind__"] != KIND:
            raise KeyError("__kind__")
        return [str(shard["url"]).rpartition("/")[2] for shard in content["shardlist"]]
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        raise DataError(
            f"{path}: not a list of shards of kind {KIND}: {cause!r}; write it anew or remove it"
        ) from cause
