"""``rbprune shard``."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from rbprune.cli.options import Json
from rbprune.data.make_shards import PARTS, SKIPPED, ShardRequest, make_shards
from rbprune.utils.numbers import duration

Out = Annotated[Path, Parameter(name="--out", help="where the shards go; new, empty, or left by the same command")]
PerShard = Annotated[int, Parameter(name="--images-per-shard", help="images in one tar")]
Seed = Annotated[int, Parameter(name="--seed", help="decides the order of the images")]
Workers = Annotated[int, Parameter(name="--workers", help="processes that read, decode and write")]
Check = Annotated[
    bool, Parameter(name="--check", negative="--no-check", help="decode every image; leave out the corrupt")
]


def shard(
    source: Path,
    *,
    out: Out,
    images_per_shard: PerShard = 2000,
    seed: Seed = 0,
    workers: Workers = 1,
    check: Check = True,
    json: Json = False,
) -> None:
    """Pack a folder of images into shuffled WebDataset shards, for data.name = "shards".

    The files' bytes are kept as they are. An interrupted command goes on when it is called again.

    Parameters
    ----------
    source
        A folder with train/CLASS/NAME.jpg and val/CLASS/NAME.jpg.
    """
    request = ShardRequest(images_per_shard, seed, check)
    summary = make_shards(source, out, request, workers=workers, console=Console(stderr=True))
    if json:
        print(dumps(summary, indent=2))
    else:
        _show(summary, out)


def _show(summary: dict[str, Any], out: Path) -> None:
    lines = []
    for part in PARTS:
        n = summary[part]
        lines.append(f"{part}: {n['images']:,} images in {n['shards']:,} shards, {n['bytes'] / 1e6:,.1f} MB")
    if summary["skipped"]:
        first = summary["skipped"][0]
        lines.append(f"left out: {len(summary['skipped'])} corrupt images, listed in {out / SKIPPED}")
        lines.append(f"  the first: {first['file']}: {first['why']}")
    lines.append(f"{summary['classes']:,} classes, {duration(summary['seconds'])}")
    lines.append(f"use them with: --set data.name=shards --set data.path={out}")
    console = Console()
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
