"""Where the images of a WebDataset shard lie, and the file that spares walking the shard again.

A shard is a plain tar of KEY.jpg and KEY.cls. The key of a member is its path up to the first dot of the file name,
what follows is the field; members of other fields (KEY.json, ...) and hidden files are passed over, as WebDataset does.

``train.index.npz`` keeps the offsets, sizes and labels of all shards of ``train``. They are believed only for a tar of
the same length, time and beginning.
"""

from __future__ import annotations

import io
import math
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rbprune.data.image import IMAGE_ENDINGS
from rbprune.errors import DataError
from rbprune.utils.files import write_atomic
from rbprune.utils.names import printable
from rbprune.utils.plain_file import open_plain, read_plain

BLOCK = tarfile.BLOCKSIZE
LONGEST_LABEL = 9
COMPRESSED = {"gzip": b"\x1f\x8b", "bzip2": b"BZh", "xz": b"\xfd7zXZ\0", "zstd": b"\x28\xb5\x2f\xfd"}
"""The bytes with which compressed files begin."""
HEAD = 4096
"""How many bytes of a tar go into its stamp."""

Stamp = tuple[int, int, int]
"""The length of a tar, when it was written (in ns), and a checksum of its first HEAD bytes."""


@dataclass(frozen=True)
class TarIndex:
    """The offset, size and label of every image of one tar, in the order of the tar."""

    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    labels: NDArray[np.int64]


IndexedShards = Mapping[str, tuple[Stamp, TarIndex]]
"""The stamp and the index of each shard, by the name of its tar."""


def index_tar(path: Path) -> TarIndex:
    """The index of a shard, made by walking its headers; everything that is not as it should be is an error."""
    found = _Members(path)
    with open_plain(path, DataError) as file:
        for member in _walk(path, file):
            found.add(member, file)
    found.check_pairs()
    rows = [(m.offset_data, m.size, found.labels[key]) for key, m in found.images.items()]
    offsets, sizes, labels = np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy()
    return TarIndex(offsets, sizes, labels)


def member_names(path: Path) -> dict[int, str]:
    """The name of every member by the offset of its data."""
    with open_plain(path, DataError) as file:
        return {member.offset_data: member.name for member in _walk(path, file)}


def split_name(name: str) -> tuple[str, str]:
    """The key and the field of a member.

    >>> split_name("train.v2/n01440764/img_7.JPEG"), split_name("a.b.cls")
    (('train.v2/n01440764/img_7', 'jpeg'), ('a', 'b.cls'))
    """
    folder, slash, base = name.rpartition("/")
    stem, _, ending = base.partition(".")
    return folder + slash + stem, ending.lower()


@dataclass
class _Members:
    """The images and labels of a shard by key, as its members come in."""

    path: Path
    images: dict[str, tarfile.TarInfo] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    longer: dict[str, str] = field(default_factory=dict)
    """A member with another field that ends like an image or a label, such as KEY.seg.png, by key."""

    def add(self, member: tarfile.TarInfo, file: Any) -> None:
        """Take in one member; links, pipes and second images or labels of a key are errors."""
        if member.isdir():
            return
        if not member.isreg() or member.issparse():
            self._refuse(member.name, _kind(member), "shards hold plain files; write it anew with the file itself")
        key, ending = split_name(member.name)
        if not key.rpartition("/")[2]:
            return  # a hidden file
        last = ending.rpartition(".")[2]
        known = last == "cls" or f".{last}" in IMAGE_ENDINGS
        if known and last != ending:
            self.longer.setdefault(key, member.name)
        if last != ending or not known:
            return
        group: dict[str, Any] = self.labels if last == "cls" else self.images
        if key in group:
            what = "label" if last == "cls" else "image"
            self._refuse(member.name, f"is a second {what} for key {key!r}", "give every example a key of its own")
        group[key] = self._label(member, file) if last == "cls" else member

    def _label(self, member: tarfile.TarInfo, file: Any) -> int:
        """The class number in a member KEY.cls."""
        raw = os.pread(file.fileno(), min(member.size, 64), member.offset_data)
        text = raw.decode("ascii", "replace").strip()
        if re.fullmatch(rf"[0-9]{{1,{LONGEST_LABEL}}}", text) and member.size <= 64:
            return int(text)
        what = "negative" if re.fullmatch("-[0-9]+", text) else "not a class number"
        return self._refuse(member.name, f"holds {text!r}, which is {what}", "write the class as an integer from 0 on")

    def check_pairs(self) -> None:
        """Every image has a label and every label an image; a name with more dots is no example of its own."""
        for key, name in self.longer.items():
            if key not in self.images or key not in self.labels:
                remedy = "a key ends at the first dot; rename it so that the file name has one dot"
                self._refuse(name, f"is field {split_name(name)[1]!r} of key {key!r}", remedy)
        for one, other, missing in ((self.images, self.labels, ".cls"), (self.labels, self.images, "image")):
            alone = [key for key in one if key not in other]
            if alone:
                what = f"has no {missing} ({len(alone)} such of {len(one)})"
                self._refuse(
                    f"key {alone[0]!r}", what, "each example is KEY.jpg and KEY.cls; add it, or drop the other"
                )

    def _refuse(self, name: str, what: str, remedy: str) -> Any:
        raise DataError(f"{printable(self.path)}: {printable(name)} {what}; {remedy}")


def _kind(member: tarfile.TarInfo) -> str:
    """What a member is that is no plain file, in words."""
    if member.issym() or member.islnk():
        return f"is a {'symbolic' if member.issym() else 'hard'} link to {member.linkname!r}"
    return "is a sparse file" if member.issparse() else f"is of tar type {member.type.decode('latin-1')!r}"


def _walk(path: Path, file: Any) -> Iterator[tarfile.TarInfo]:
    """Every member of a tar; one that is cut short or damaged is an error, where tarfile would just end."""
    end, size = 0, os.fstat(file.fileno()).st_size
    short = f"it is {size} bytes long, so it was cut short"
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for member in tar:
                if member.offset_data + member.size > size:
                    raise tarfile.ReadError(short)
                end = member.offset_data + -(-member.size // BLOCK) * BLOCK
                yield member
    except (tarfile.TarError, OSError, ValueError, OverflowError, EOFError, RecursionError) as cause:
        raise _damaged(path, file, end, str(cause)) from cause
    mark = os.pread(file.fileno(), BLOCK, end)
    if len(mark) < BLOCK:
        raise _damaged(path, file, end, short)
    if mark.strip(b"\0"):
        raise _damaged(path, file, end, "what follows is no header of a member")


def _damaged(path: Path, file: Any, end: int, why: str) -> DataError:
    """The error for a tar that can be followed up to the byte ``end`` only."""
    head = os.pread(file.fileno(), 6, 0)
    for program, magic in COMPRESSED.items():
        if head.startswith(magic):
            return DataError(f"{path}: is compressed by {program}; shards are read at random, so decompress it first")
    return DataError(f"{path}: not a whole tar: after byte {end}: {why}; copy it or write it anew")


def stamp(path: Path) -> Stamp:
    """The stamp of a tar, which tells it from another without reading it all."""
    with open_plain(path, DataError) as file:
        about = os.fstat(file.fileno())
        return about.st_size, about.st_mtime_ns, zlib.crc32(file.read(HEAD))


def save_index(folder: Path, part: str, shards: IndexedShards) -> None:
    """Write ``PART.index.npz``, which keeps the indices of all shards of a part."""
    indices = [index for _, index in shards.values()]
    content = io.BytesIO()
    np.savez(
        content,
        names=np.array(list(shards)),
        stamps=np.array([stamp for stamp, _ in shards.values()], dtype=np.int64),
        counts=np.array([len(index.labels) for index in indices], dtype=np.int64),
        rows=np.concatenate([np.stack([i.offsets, i.sizes, i.labels]) for i in indices], axis=1),
    )
    write_atomic(folder / f"{part}.index.npz", content.getvalue())


def load_index(folder: Path, part: str) -> dict[str, tuple[Stamp, TarIndex]]:
    """The indices that ``PART.index.npz`` keeps; none where it is missing or damaged."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_plain(folder / f"{part}.index.npz", DataError))) as content:
            arrays = [_stored_array(content, key) for key in ("names", "stamps", "counts", "rows")]
        return _unpack(*arrays)
    except (DataError, *_DAMAGED):
        return {}


_DAMAGED = (
    *(ValueError, KeyError, TypeError, SyntaxError, OverflowError, RecursionError, MemoryError),
    *(EOFError, OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, struct.error),
)
"""What zipfile and numpy raise for files that are no zip of arrays."""


def _stored_array(content: zipfile.ZipFile, key: str) -> NDArray[Any]:
    """An array of a zip as ``np.savez`` writes it: not compressed, so that it is no longer than the file that holds it,
    and with as many values as its header says, which are not believed before they are there."""
    about = content.getinfo(f"{key}.npy")
    if about.compress_type != zipfile.ZIP_STORED or about.file_size != about.compress_size:
        raise ValueError("compressed")
    raw = io.BytesIO(content.read(about))
    if np.lib.format.read_magic(raw) != (1, 0):
        raise ValueError("another version of .npy")
    shape, in_columns, dtype = np.lib.format.read_array_header_1_0(raw)
    if dtype.hasobject or in_columns or math.prod(shape) * dtype.itemsize != about.file_size - raw.tell():
        raise ValueError("not as many values as it says")
    return np.frombuffer(raw.read(), dtype).reshape(shape)


def _unpack(names: Any, stamps: Any, counts: Any, rows: Any) -> dict[str, tuple[Stamp, TarIndex]]:
    """The arrays of the file as an index per shard; what cannot be an index is a ValueError."""
    if not all(array.dtype == np.int64 for array in (stamps, counts, rows)) or rows.ndim != 2 or len(rows) != 3:
        raise ValueError("not an index")
    if (counts < 0).any() or (counts > rows.shape[1]).any() or counts.sum() != rows.shape[1]:
        raise ValueError("not an index")
    parts = np.split(rows, np.cumsum(counts)[:-1], axis=1)
    found = {}
    for name, (size, written, head), (offsets, sizes, labels) in zip(
        names.tolist(), stamps.tolist(), parts, strict=True
    ):
        if len(labels) and not (offsets.min() >= 0 and sizes.min() >= 0 and (offsets <= size - sizes).all()):
            raise ValueError("beyond the tar")
        if len(labels) and not 0 <= labels.min() <= labels.max() < 10**LONGEST_LABEL:
            raise ValueError("no class")
        found[str(name)] = ((size, written, head), TarIndex(offsets, sizes, labels))
    return found
