"""The shards of ``train`` or ``val`` in a folder, and an index that spares walking them again.

``train.json`` is WebDataset's own list of shards (wids): where it is there, exactly those shards must be.
``train.index.npz`` is ours: offsets, sizes and labels, believed for a tar of the same length, time and beginning only.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rbprune.data.tar_index import TarIndex, index_tar
from rbprune.errors import DataError
from rbprune.utils.files import write_atomic

KIND = "wids-shard-index-v1"
REQUEST = "shards.json"
"""Written first by ``rbprune shard``; the lists of shards come last."""
LAYOUT = "expected DIR/train-000000.tar, ... and DIR/val-000000.tar, ..., as 'rbprune shard SRC --out DIR' writes them"
HEAD = 4096

Stamp = tuple[int, int, int]
"""Length of a tar, when it was written (in ns), and a checksum of its beginning."""
Known = Mapping[str, tuple[Stamp, TarIndex]]
"""By the name of the tar."""


def read_part(folder: Path, part: str) -> list[tuple[Path, TarIndex]]:
    """Every shard of a part with its index; what had to be walked is noted for the next time."""
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
        what = f"{missing[0]} is missing ({len(missing)} such)" if missing else f"{extra[0]} is too many"
        raise DataError(
            f"shards: {folder / part}.json lists {len(listed)} shards, and {what}; copy the whole folder anew"
        )
    if not names:
        held = f"it holds {', '.join(inside[:5])}{', ...' if len(inside) > 5 else ''}" if inside else "it is empty"
        held = held if folder.is_dir() else "it does not exist"
        raise DataError(f"shards: no {part}-*.tar in {folder} ({held}); {LAYOUT}")
    return [folder / name for name in sorted(names, key=lambda name: (int(name[len(part) + 1 : -4]), name))]


def write_list(folder: Path, part: str, found: Known) -> None:
    """The list of shards, by which a reader knows that all are there."""
    shards = [
        {"url": name, "nsamples": len(index.labels), "filesize": size} for name, ((size, *_), index) in found.items()
    ]
    content = {"__kind__": KIND, "wids_version": 1, "name": part, "shardlist": shards}
    write_atomic(folder / f"{part}.json", json.dumps(content, indent=1) + "\n")


def _listed(path: Path) -> list[str] | None:
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_bytes())
        if content["__kind__"] != KIND:
            raise KeyError("__kind__")
        return [str(shard["url"]).rpartition("/")[2] for shard in content["shardlist"]]
    except (ValueError, KeyError, TypeError, RecursionError) as cause:
        raise DataError(
            f"{path}: not a list of shards of kind {KIND}: {cause!r}; write it anew or remove it"
        ) from cause


def stamp(path: Path) -> Stamp:
    """What tells one tar from another without reading it all."""
    try:
        with open(path, "rb") as file:
            about = os.fstat(file.fileno())
            return about.st_size, about.st_mtime_ns, zlib.crc32(file.read(HEAD))
    except OSError as cause:
        raise DataError(f"{path}: cannot be read: {cause.strerror}; check data.path and who may read it") from cause


def save_index(folder: Path, part: str, found: Known) -> None:
    """Write ``PART.index.npz``."""
    indices = [index for _, index in found.values()]
    content = io.BytesIO()
    np.savez(
        content,
        names=np.array(list(found)),
        stamps=np.array([stamp for stamp, _ in found.values()], dtype=np.int64),
        counts=np.array([len(index.labels) for index in indices], dtype=np.int64),
        rows=np.concatenate([np.stack([i.offsets, i.sizes, i.labels]) for i in indices], axis=1),
    )
    write_atomic(folder / f"{part}.index.npz", content.getvalue())


def load_index(folder: Path, part: str) -> dict[str, tuple[Stamp, TarIndex]]:
    """What ``PART.index.npz`` says; nothing where it cannot be used."""
    try:
        raw = io.BytesIO((folder / f"{part}.index.npz").read_bytes())
        with np.load(raw, allow_pickle=False) as content:
            names, stamps, counts, rows = (content[key] for key in ("names", "stamps", "counts", "rows"))
        return _unpack(names, stamps, counts, rows)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError):
        return {}


def _unpack(names: Any, stamps: Any, counts: Any, rows: Any) -> dict[str, tuple[Stamp, TarIndex]]:
    if not all(array.dtype == np.int64 for array in (stamps, counts, rows)) or counts.sum() != rows.shape[1]:
        raise ValueError("not an index")
    parts = np.split(rows, np.cumsum(counts)[:-1], axis=1)
    found = {}
    for name, (size, written, head), (offsets, sizes, labels) in zip(
        names.tolist(), stamps.tolist(), parts, strict=True
    ):
        if len(labels) and not (offsets.min() >= 0 and sizes.min() >= 0 and (offsets + sizes).max() <= size):
            raise ValueError("beyond the tar")
        found[str(name)] = ((size, written, head), TarIndex(offsets, sizes, labels))
    return found
