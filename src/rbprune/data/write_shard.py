"""Writing one shard: image files verbatim and their labels, as the same bytes whenever and wherever it is done."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rbprune.data.image import decode
from rbprune.data.shard_index import Stamp, stamp
from rbprune.data.tar_index import TarIndex, index_tar, member_names
from rbprune.errors import CorruptError, DataError
from rbprune.utils.files import atomic


@dataclass(frozen=True)
class Picture:
    """An image file, and what it is called in the shard."""

    file: Path
    key: str
    label: int

    @property
    def member(self) -> str:
        """The name of the image in the tar."""
        return self.key + self.file.suffix.lower()

    def read(self) -> bytes:
        """Its bytes."""
        try:
            return self.file.read_bytes()
        except OSError as cause:
            raise DataError(
                f"{self.file}: cannot be read: {cause.strerror}; check who may read it, or remove it"
            ) from cause


@dataclass(frozen=True)
class Job:
    """One shard to be."""

    path: Path
    part: str
    pictures: list[Picture]
    check: bool


@dataclass(frozen=True)
class Made:
    """A shard that is there, and which pictures are not in it."""

    stamp: Stamp
    index: TarIndex
    skipped: list[tuple[Path, str]]


def make_shard(job: Job, tick: Callable[[], None]) -> Made:
    """Write a shard, unless it is there already, and read its index back; ``tick`` is called for every picture."""
    skipped = _look_again(job, tick) if job.path.exists() else _write(job, tick)
    return Made(stamp(job.path), index_tar(job.path), skipped)


def _write(job: Job, tick: Callable[[], None]) -> list[tuple[Path, str]]:
    skipped = []
    try:
        with atomic(job.path) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for picture in job.pictures:
                tick()
                data = picture.read()
                why = _fault(data) if job.check else None
                if why is None:
                    _add(tar, picture.member, data)
                    _add(tar, f"{picture.key}.cls", str(picture.label).encode())
                else:
                    skipped.append((picture.file, why))
    except OSError as cause:
        raise DataError(f"{job.path}: cannot be written: {cause.strerror}; make room, and call again") from cause
    return skipped


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)  # time, owner and group 0
    info.size = len(data)
    content: BinaryIO = io.BytesIO(data)
    tar.addfile(info, content)


def _look_again(job: Job, tick: Callable[[], None]) -> list[tuple[Path, str]]:
    """What an earlier call left out of a shard."""
    inside = set(member_names(job.path).values())
    skipped = []
    for picture in job.pictures:
        tick()
        if picture.member not in inside:
            skipped.append((picture.file, _fault(picture.read()) or "could not be read before"))
    return skipped


def _fault(data: bytes) -> str | None:
    """Why the pixels cannot be had."""
    try:
        decode(data, str)
    except CorruptError as error:
        return error.why
    return None
