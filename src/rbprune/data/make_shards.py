"""Making WebDataset shards of a folder of images, by several processes, going on where it was interrupted.

Image files are packed verbatim: the same files and the same request give the same bytes whenever and wherever it is
done.
"""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import signal
import tarfile
import time
from collections.abc import Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from rbprune.data.folder import list_classes, list_images
from rbprune.data.image import MOST_BYTES, decode
from rbprune.data.shard_index import Stamp, TarIndex, index_tar, member_names, save_index, stamp
from rbprune.data.shards import CLASSES, REQUEST, write_list
from rbprune.errors import ConfigError, CorruptError, DataError
from rbprune.logging.progress import Progress
from rbprune.utils.files import atomic, write_atomic
from rbprune.utils.interrupt import Interrupted, Signals
from rbprune.utils.names import printable
from rbprune.utils.plain_file import read_plain
from rbprune.utils.seeds import mix

PARTS = ("train", "val")
SKIPPED = "skipped.txt"
"""The list of the images that were left out."""
POLL = 0.2
"""Seconds between two looks at what the processes have done."""


@dataclass(frozen=True)
class ShardRequest:
    """What decides the bytes of the shards, beside the files."""

    images_per_shard: int = 2000
    seed: int = 0
    check: bool = True


@dataclass(frozen=True)
class SourceImage:
    """An image file, its key in the shard and its label."""

    file: Path
    key: str
    label: int

    @property
    def member(self) -> str:
        """The name of the image in the tar."""
        return self.key + self.file.suffix.lower()

    def read(self) -> bytes:
        """The bytes of the file."""
        return read_plain(self.file, DataError, most=MOST_BYTES)


@dataclass(frozen=True)
class ShardJob:
    """One shard to be made; with ``check`` the images that cannot be decoded are left out of it."""

    path: Path
    part: str
    images: list[SourceImage]
    check: bool


@dataclass(frozen=True)
class FinishedShard:
    """A shard that is there, and which images are not in it, each with the reason."""

    stamp: Stamp
    index: TarIndex
    skipped: list[tuple[Path, str]]


def make_shards(source: Path, out: Path, request: ShardRequest, *, workers: int, console: Console) -> dict[str, Any]:
    """Write the shards of ``source`` that are missing in ``out``, and return the summary.

    The lists of shards come last, as the sign that all is there.
    """
    for name, value in (("images-per-shard", request.images_per_shard), ("workers", workers)):
        if value < 1:
            raise ConfigError(f"--{name} must be at least 1, got {value}")
    began = time.monotonic()
    classes = list_classes(source)
    images = {part: list_source_images(source / part, classes) for part in PARTS}
    _claim(out, request, images)
    write_atomic(out / CLASSES, json.dumps(classes, indent=0) + "\n")
    jobs = [job for part in PARTS for job in _jobs(out, part, images[part], request)]
    made = _make_all(jobs, workers, console)
    shards = {part: {job.path.name: made[job.path] for job in jobs if job.part == part} for part in PARTS}
    skipped = [(file.relative_to(source), why) for job in jobs for file, why in made[job.path].skipped]
    listed = "".join(f"{_one_line(file)}\t{printable(why)}\n" for file, why in sorted(skipped))
    write_atomic(out / SKIPPED, listed.encode("utf-8", "surrogateescape"))
    for write in (save_index, write_list):
        for part in PARTS:
            write(out, part, {name: (shard.stamp, shard.index) for name, shard in shards[part].items()})
    return {
        "out": str(out),
        "classes": len(classes),
        **{part: _totals(shards[part].values()) for part in PARTS},
        "skipped": [{"file": printable(file), "why": printable(why)} for file, why in sorted(skipped)],
        "seconds": time.monotonic() - began,
    }


def _one_line(file: Path) -> str:
    """The name of a file, which need not be UTF-8 and keeps its bytes, without what would break a list."""
    return "".join(c if "\udc80" <= c <= "\udcff" else printable(c) for c in str(file))


def _totals(shards: Collection[FinishedShard]) -> dict[str, int]:
    """What the summary says of the shards of a part."""
    return {
        "shards": len(shards),
        "images": sum(len(shard.index.labels) for shard in shards),
        "skipped": sum(len(shard.skipped) for shard in shards),
        "bytes": sum(shard.stamp[0] for shard in shards),
    }


def list_source_images(folder: Path, classes: list[str]) -> list[SourceImage]:
    """Every image with its key CLASS/NAME; keys have no dot in NAME, and stay apart where only the ending differed."""
    files, labels = list_images(folder, classes)
    images, taken = [], set()
    for file, label in zip(files, labels.tolist(), strict=True):
        key = first = f"{file.parent.name}/{file.stem.replace('.', '_')}"
        again = 1
        while key in taken:
            again += 1
            key = f"{first}-{again}"
        taken.add(key)
        images.append(SourceImage(file, key, label))
    return images


def _claim(out: Path, request: ShardRequest, images: Mapping[str, list[SourceImage]]) -> None:
    """Make ``out`` the folder of this request and these files, refuse another's, and remove half-written shards."""
    digest = hashlib.sha256()
    for part in PARTS:
        for image in images[part]:
            digest.update(f"{part}/{image.file.parent.name}/{image.file.name}\0".encode("utf-8", "surrogateescape"))
    wanted = {**asdict(request), "files": sum(map(len, images.values())), "names_sha256": digest.hexdigest()}
    before = _earlier_request(out / REQUEST)
    if before is None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and holds something else; choose another --out, or empty it")
    for key, value in wanted.items():
        if before is not None and before.get(key) != value:
            was = before.get(key)
            raise ConfigError(f"{out} holds shards with another {key} ({was!r}, now {value!r}); choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / REQUEST, json.dumps(wanted, indent=2) + "\n")
    for leftover in out.glob(".*.tar.*.tmp"):
        leftover.unlink()


def _earlier_request(path: Path) -> dict[str, Any] | None:
    """What an earlier call was asked for, or None without one."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _jobs(out: Path, part: str, images: list[SourceImage], request: ShardRequest) -> list[ShardJob]:
    """The shards of a part: its images, shuffled by the seed, and so many to a shard."""
    generator = torch.Generator().manual_seed(mix(request.seed, PARTS.index(part)))
    order = torch.randperm(len(images), generator=generator).tolist()
    size = request.images_per_shard
    shards = [order[start : start + size] for start in range(0, len(order), size)]
    return [
        ShardJob(out / f"{part}-{number:06d}.tar", part, [images[i] for i in chosen], request.check)
        for number, chosen in enumerate(shards)
    ]


def _make_shard(job: ShardJob) -> FinishedShard:
    """Write a shard, unless it is there already, and read its index back."""
    skipped = _missing_images(job) if job.path.exists() else _write_shard(job)
    return FinishedShard(stamp(job.path), index_tar(job.path), skipped)


def _write_shard(job: ShardJob) -> list[tuple[Path, str]]:
    """Write a shard, and return the images that are left out of it, each with the reason."""
    skipped = []
    try:
        with atomic(job.path) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for image in job.images:
                _count_image()
                data = image.read()
                why = _why_unreadable(data) if job.check else None
                if why is None:
                    _add_member(tar, image.member, data)
                    _add_member(tar, f"{image.key}.cls", str(image.label).encode())
                else:
                    skipped.append((image.file, why))
    except OSError as cause:
        raise DataError(f"{job.path}: cannot be written: {cause.strerror}; make room, and call again") from cause
    return skipped


def _add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    """Add a member whose time, owner and group are 0, so that they do not change the bytes of the shard."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _missing_images(job: ShardJob) -> list[tuple[Path, str]]:
    """The images that an earlier call left out of a shard that is there, each with the reason."""
    inside = set(member_names(job.path).values())
    skipped = []
    for image in job.images:
        _count_image()
        if image.member not in inside:
            skipped.append((image.file, _why_unreadable(image.read()) or "could not be read before"))
    return skipped


def _why_unreadable(data: bytes) -> str | None:
    """Why an image cannot be decoded, or None if it can."""
    try:
        decode(data, str)
    except CorruptError as error:
        return error.why
    return None


def _make_all(jobs: list[ShardJob], workers: int, console: Console) -> dict[Path, FinishedShard]:
    """Make every shard by ``workers`` processes, and show how far they are."""
    context = multiprocessing.get_context()
    stop, done = context.Event(), context.Value("q", 0)
    progress = Progress(console)
    made: dict[Path, FinishedShard] = {}
    with Signals() as signals, progress, ProcessPoolExecutor(workers, context, _begin, (stop, done)) as pool:
        progress.stages(len(jobs))
        progress.epoch(sum(len(job.images) for job in jobs), "images")
        waiting = {pool.submit(_make_shard, job): job for job in jobs}
        shown = 0
        try:
            while waiting:
                for future in wait(waiting, timeout=POLL, return_when=FIRST_COMPLETED).done:
                    made[waiting.pop(future).path] = future.result()
                progress.stage(len(made), "shards")
                progress.step(count=done.value - shown)
                shown = done.value
                if signals.received is not None:
                    raise Interrupted(signals.received, "interrupted; call the same command again to go on")
        except BrokenProcessPool as cause:
            raise DataError("a process died, perhaps for want of memory; call again, with fewer --workers") from cause
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    return made


_stop: Any = None
"""In a process of the pool, the event that is set when the command was interrupted."""
_done: Any = None
"""In a process of the pool, how many images all of them have read."""


class _Stopped(Exception):
    """Ends a process in the middle of a shard when the command was interrupted."""


def _begin(stop: Any, done: Any) -> None:
    """Prepare a process of the pool; Ctrl-C is for the main process to act on."""
    global _stop, _done
    _stop, _done = stop, done
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _count_image() -> None:
    """Count one more image for the progress bar, and stop if the command was interrupted."""
    if _stop.is_set():
        raise _Stopped
    with _done.get_lock():
        _done.value += 1
