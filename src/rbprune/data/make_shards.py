"""A folder of images made into WebDataset shards, by several processes, and going on where it was interrupted."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import signal
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
from rbprune.data.shard_index import REQUEST, save_index, write_list
from rbprune.data.shards import CLASSES
from rbprune.data.write_shard import Job, Made, Picture, make_shard
from rbprune.errors import ConfigError, DataError
from rbprune.logging.progress import Progress
from rbprune.utils.files import write_atomic
from rbprune.utils.interrupt import Interrupted, Signals
from rbprune.utils.seeds import mix

PARTS = ("train", "val")
SKIPPED = "skipped.txt"
POLL = 0.2


@dataclass(frozen=True)
class Request:
    """What decides the bytes of the shards."""

    images_per_shard: int = 2000
    seed: int = 0
    check: bool = True


def make_shards(source: Path, out: Path, request: Request, *, workers: int, console: Console) -> dict[str, Any]:
    """Write what is missing in ``out``; returns the summary.

    The lists of shards come last, as the sign that all is there.
    """
    for name, value in (("images-per-shard", request.images_per_shard), ("workers", workers)):
        if value < 1:
            raise ConfigError(f"--{name} must be at least 1, got {value}")
    began = time.monotonic()
    classes = list_classes(source)
    pictures = {part: list_pictures(source / part, classes) for part in PARTS}
    _claim(out, request, pictures)
    write_atomic(out / CLASSES, json.dumps(classes, indent=0) + "\n")
    jobs = [job for part in PARTS for job in _jobs(out, part, pictures[part], request)]
    made = _make_all(jobs, workers, console)
    shards = {part: {job.path.name: made[job.path] for job in jobs if job.part == part} for part in PARTS}
    skipped = [(file.relative_to(source), why) for job in jobs for file, why in made[job.path].skipped]
    listed = "".join(f"{file}\t{why}\n" for file, why in sorted(skipped))
    write_atomic(out / SKIPPED, listed.encode("utf-8", "surrogateescape"))
    for part in PARTS:
        save_index(out, part, {name: (shard.stamp, shard.index) for name, shard in shards[part].items()})
    for part in PARTS:
        write_list(out, part, {name: (shard.stamp, shard.index) for name, shard in shards[part].items()})
    return {
        "out": str(out),
        "classes": len(classes),
        **{part: _figures(shards[part].values()) for part in PARTS},
        "skipped": [{"file": _printable(file), "why": why} for file, why in sorted(skipped)],
        "seconds": time.monotonic() - began,
    }


def _printable(file: Path) -> str:
    """A name that need not be UTF-8."""
    return str(file).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _figures(shards: Collection[Made]) -> dict[str, int]:
    return {
        "shards": len(shards),
        "images": sum(len(shard.index.labels) for shard in shards),
        "skipped": sum(len(shard.skipped) for shard in shards),
        "bytes": sum(shard.stamp[0] for shard in shards),
    }


def list_pictures(folder: Path, classes: list[str]) -> list[Picture]:
    """Every image with its key CLASS/NAME; keys have no dot in NAME, and stay apart where only the ending differed."""
    files, labels = list_images(folder, classes)
    pictures, taken = [], set()
    for file, label in zip(files, labels.tolist(), strict=True):
        key = first = f"{file.parent.name}/{file.stem.replace('.', '_')}"
        again = 1
        while key in taken:
            again += 1
            key = f"{first}-{again}"
        taken.add(key)
        pictures.append(Picture(file, key, label))
    return pictures


def _claim(out: Path, request: Request, pictures: Mapping[str, list[Picture]]) -> None:
    """A folder belongs to one request and one set of files; what another call left half-written goes."""
    digest = hashlib.sha256()
    for part in PARTS:
        for picture in pictures[part]:
            digest.update(f"{part}/{picture.file.parent.name}/{picture.file.name}\0".encode("utf-8", "surrogateescape"))
    wanted = {**asdict(request), "files": sum(map(len, pictures.values())), "names_sha256": digest.hexdigest()}
    path = out / REQUEST
    before = _claimed(path)
    if before is None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and holds something else; choose another --out, or empty it")
    for key, value in wanted.items():
        if before is not None and before.get(key) != value:
            was = before.get(key)
            raise ConfigError(f"{out} holds shards with another {key} ({was!r}, now {value!r}); choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(wanted, indent=2) + "\n")
    for leftover in out.glob(".*.tar.*.tmp"):
        leftover.unlink()


def _claimed(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _jobs(out: Path, part: str, pictures: list[Picture], request: Request) -> list[Job]:
    generator = torch.Generator().manual_seed(mix(request.seed, PARTS.index(part)))
    order = torch.randperm(len(pictures), generator=generator).tolist()
    size = request.images_per_shard
    return [
        Job(
            out / f"{part}-{start // size:06d}.tar",
            part,
            [pictures[i] for i in order[start : start + size]],
            request.check,
        )
        for start in range(0, len(order), size)
    ]


def _make_all(jobs: list[Job], workers: int, console: Console) -> dict[Path, Made]:
    context = multiprocessing.get_context()
    stop, done = context.Event(), context.Value("q", 0)
    progress = Progress(console)
    made: dict[Path, Made] = {}
    with Signals() as signals, progress, ProcessPoolExecutor(workers, context, _begin, (stop, done)) as pool:
        progress.stages(len(jobs))
        progress.epoch(sum(len(job.pictures) for job in jobs), "images")
        waiting = {pool.submit(_make, job): job for job in jobs}
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
_done: Any = None


class _Stopped(Exception):
    """The command was interrupted."""


def _begin(stop: Any, done: Any) -> None:
    """A process begins: Ctrl-C is for the main one to act on."""
    global _stop, _done
    _stop, _done = stop, done
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _make(job: Job) -> Made:
    return make_shard(job, _tick)


def _tick() -> None:
    if _stop.is_set():
        raise _Stopped
    with _done.get_lock():
        _done.value += 1
