"""Every kind of file that comes from outside: a good one, and what rbprune does with it."""

from __future__ import annotations

import gzip
import io
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save
from torch import nn

from rbprune.data.cifar10 import read_cifar10
from rbprune.data.image import IMAGE_FORMATS, decode
from rbprune.data.mnist import read_idx, write_idx
from rbprune.data.shard_index import load_index
from rbprune.data.shards import index_part, open_shards
from rbprune.errors import CorruptError
from rbprune.export.config import CONFIG, read_config
from rbprune.graph import Plan, apply_plan, trace
from rbprune.models.weights import load_weights
from rbprune.report.html import write_report
from rbprune.runs.folder import RunFolder
from rbprune.runs.frontier import Frontier, read_frontier
from rbprune.runs.point import PrunedPoint
from rbprune.settings.recipe import load_recipe
from rbprune.train.evaluate import Mistakes
from tests.data.shard_files import jpeg, pairs, write_tar

OLD_RUN = Path(__file__).parents[1] / "runs" / "old_run"
ZOO = Path(__file__).parents[2] / "zoo"
RECIPES = Path(__file__).parents[2] / "src" / "rbprune" / "settings" / "recipes"


@dataclass(frozen=True)
class Kind:
    """Good files of a kind, and how one of them is read in a folder of its own."""

    good: Callable[[Path], list[bytes]]
    """Makes the folder ready and gives some good files."""
    read: Callable[[Path, bytes], object]
    """Reads one that was changed."""


def small_network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))


def _put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _plans(folder: Path) -> list[bytes]:
    model = small_network()
    graph = trace(model, torch.zeros(1, 1, 4, 4))
    whole = json.loads(graph.remove({"0": [1, 3]}).to_json())
    bare = {name: value for name, value in whole.items() if name != "sha256"}  # a stranger's plan need not have one
    return [json.dumps(plan).encode() for plan in (whole, bare)]


def _plan(folder: Path, data: bytes) -> object:
    plan = Plan.from_json(data.decode("utf-8", "replace"))
    return apply_plan(small_network(), plan)


def _events(folder: Path, data: bytes) -> object:
    settings = _put(folder / "config.toml", (OLD_RUN / "config.toml").read_bytes())
    return write_report(folder / "report.html", events=_put(folder / "events.jsonl", data), settings=settings)


def _config(folder: Path, data: bytes) -> object:
    _put(folder / "config.toml", data)
    return RunFolder(folder).read_settings()


def _idx(folder: Path) -> list[bytes]:
    values = torch.arange(3 * 28 * 28, dtype=torch.float).view(3, 28, 28).to(torch.uint8)
    return [write_idx(values)]


def _cifar_bin(folder: Path) -> list[bytes]:
    return [np.random.default_rng(0).integers(0, 10, (2, 3073), dtype=np.uint8).tobytes()]


def _cifar_py(folder: Path) -> list[bytes]:
    images = np.random.default_rng(0).integers(0, 256, (2, 3072), dtype=np.uint8)
    content = {"batch_label": "test", "labels": [1, 2], "data": images, "filenames": ["a.png", "b.png"]}
    return [pickle.dumps(content, protocol=2).replace(b"cnumpy._core", b"cnumpy.core")] + [
        pickle.dumps(content, protocol=protocol) for protocol in (0, 4)
    ]


def _shards(folder: Path) -> None:
    for part in ("train", "val"):
        write_tar(folder / f"{part}-000000.tar", pairs("abc", 1))
        index_part(folder, part)


def _tars(folder: Path) -> list[bytes]:
    _shards(folder)
    return [(folder / "train-000000.tar").read_bytes()]


def _tar(folder: Path, data: bytes) -> object:
    _put(folder / "train-000000.tar", data)
    (folder / "train.index.npz").unlink(missing_ok=True)
    return _read_all(folder)


def _read_all(folder: Path) -> int:
    train, _, _ = open_shards(folder)
    for index in range(min(len(train.labels), 20)):
        try:
            decode(train.read(index), str)
        except CorruptError:
            train.where(index)
    return len(train.labels)


def _indices(folder: Path) -> list[bytes]:
    _shards(folder)
    return [(folder / "train.index.npz").read_bytes()]


def _index(folder: Path, data: bytes) -> object:
    _put(folder / "train.index.npz", data)
    load_index(folder, "train")
    assert _read_all(folder) == 3, "the shard holds three images whatever its index says"
    return None


def _lists(folder: Path) -> list[bytes]:
    _shards(folder)
    listed = {"__kind__": "wids-shard-index-v1", "shardlist": [{"url": "train-000000.tar", "nsamples": 3}]}
    return [json.dumps(listed).encode()]


def _list(name: str) -> Callable[[Path, bytes], object]:
    return lambda folder, data: (_put(folder / name, data), _read_all(folder))


def _classes(folder: Path) -> list[bytes]:
    _shards(folder)
    return [b'["ant", "bee", "cat"]']


def _images(folder: Path) -> list[bytes]:
    found = [jpeg(0, (16, 20))]
    for kind in IMAGE_FORMATS:
        out = io.BytesIO()
        Image.fromarray(np.random.default_rng(1).integers(0, 256, (16, 20, 3), dtype=np.uint8)).save(out, kind)
        found.append(out.getvalue())
    out = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8)).save(out, "PNG")
    return [*found, out.getvalue()]


def _exported(folder: Path) -> list[bytes]:
    found = [path.read_bytes() for path in sorted(ZOO.glob("*/config.json"))]
    assert found, ZOO
    return found


def _frontiers(folder: Path) -> list[bytes]:
    points = [
        PrunedPoint(name, {"macs": macs}, {"macs": 100 / macs}, "error", 9.0, 8.0, 1.5)
        for name, macs in (("", 100.0), ("step-01-1.5x", 67.0), ("step-02-2x", 50.0))
    ]
    return [json.dumps(Frontier("macs", points).to_dict()).encode()]


def _mistakes(folder: Path) -> list[bytes]:
    both = {when: Mistakes(200, (1, 5, 199), 7).to_dict() for when in ("before", "after")}
    return [json.dumps(both).encode()]


KINDS: dict[str, Kind] = {
    "recipe": Kind(
        lambda folder: [path.read_bytes() for path in sorted(RECIPES.glob("*.toml"))],
        lambda folder, data: load_recipe(str(_put(folder / "recipe.toml", data))),
    ),
    "config": Kind(lambda folder: [(OLD_RUN / "config.toml").read_bytes()], _config),
    "plan": Kind(_plans, _plan),
    "events": Kind(lambda folder: [(OLD_RUN / "events.jsonl").read_bytes()], _events),
    "idx": Kind(_idx, lambda folder, data: read_idx(_put(folder / "a-idx3-ubyte", data), 3)),
    "idx.gz": Kind(
        lambda folder: [gzip.compress(_idx(folder)[0])],
        lambda folder, data: read_idx(_put(folder / "a-idx3-ubyte.gz", data), 3),
    ),
    "cifar-bin": Kind(
        _cifar_bin, lambda folder, data: read_cifar10(_put(folder / "test_batch.bin", data).parent, "test")
    ),
    "cifar-py": Kind(_cifar_py, lambda folder, data: read_cifar10(_put(folder / "test_batch", data).parent, "test")),
    "tar": Kind(_tars, _tar),
    "index": Kind(_indices, _index),
    "list": Kind(_lists, _list("train.json")),
    "classes": Kind(_classes, _list("classes.json")),
    "safetensors": Kind(
        lambda folder: [save(small_network().state_dict())],
        lambda folder, data: load_weights(small_network(), _put(folder / "a.safetensors", data)),
    ),
    "exported": Kind(_exported, lambda folder, data: read_config(_put(folder / CONFIG, data))),
    "frontier": Kind(
        _frontiers, lambda folder, data: read_frontier(_put(folder / "frontier.json", data).parent).to_dict()
    ),
    "mistakes": Kind(
        _mistakes, lambda folder, data: RunFolder(_put(folder / "mistakes.json", data).parent).read_mistakes()
    ),
    "image": Kind(_images, lambda folder, data: decode(data, lambda: "an image")),
}
