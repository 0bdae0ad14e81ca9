"""The ILSVRC2012 path as a whole: real image files of all kinds, a folder and its shards, the shipped recipes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import rbprune
from rbprune import models
from rbprune.data import load
from rbprune.data.folder import open_folder
from rbprune.data.image import ImageDataset
from rbprune.data.make_shards import ShardRequest, make_shards
from rbprune.data.shards import open_shards
from rbprune.errors import CorruptError
from rbprune.measure.count import count_run
from rbprune.runs.pair import run_pair
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe

CLASSES = ("n01440764", "n01443537", "n01484850", "n01491361")
CORRUPT = {"train/n01440764/n01440764_2.JPEG", "train/n01443537/n01443537_3.JPEG", "val/n01484850/n01484850_0.JPEG"}
TINY = [
    "data.val=0",
    "data.workers=0",
    "data.corrupt=skip",
    "data.limit=4",
    "model.weights=none",
    "model.classes=1000",
    "pretrain={epochs=0, lr=0.1}",
    "prune.batch_size=4",
    "prune.epochs=1",
    "prune.rate_init=0.48",
    "prune.rate_lr=0.05",
    "prune.price={nats=0.01}",
    "prune.confidence=0",
    "prune.max_rise=100",
    "finetune.batch_size=4",
    "finetune.epochs=1",
    "runtime.recalibrate=1",
    "runtime.precision=32-true",
    "runtime.channels_last=true",
    "runtime.threads=1",
]


def draw(generator: np.random.Generator, mode: str) -> Image.Image:
    """A smooth image of some size."""
    small = generator.integers(0, 256, (9, 12, 4), dtype=np.uint8)
    width, height = (int(n) for n in generator.integers(60, 400, 2))
    image = Image.fromarray(small, "RGBA").resize((width, height))
    return image if mode == "RGBA" else image.convert("RGB").convert(mode)


def write_image(path: Path, image: Image.Image, kind: str) -> None:
    if kind == "exif":
        exif = Image.Exif()
        exif[0x0112] = 6  # turned by 90 degrees
        image.save(path, "JPEG", exif=exif)
    elif kind == "RGBA":
        image.save(path, "PNG")  # under the name of a JPEG, as one file of ILSVRC2012 is
    else:
        image.save(path, "JPEG", progressive=kind == "progressive")


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 classes, 6 training and 3 validation images of each; three are corrupt."""
    root, generator = tmp_path_factory.mktemp("ilsvrc") / "tree", np.random.default_rng(0)
    kinds = ["RGB", "L", "CMYK", "RGBA", "exif", "progressive"]
    for part, count in (("train", 6), ("val", 3)):
        for name in CLASSES:
            (root / part / name).mkdir(parents=True)
            for i in range(count):
                kind = kinds[i]
                mode = kind if kind in ("L", "CMYK", "RGBA") else "RGB"
                write_image(root / part / name / f"{name}_{i}.JPEG", draw(generator, mode), kind)
    truncated, empty, text = (root / name for name in sorted(CORRUPT))
    truncated.write_bytes(truncated.read_bytes()[:500])
    empty.write_bytes(b"")
    text.write_text("<html>404</html>")
    return root


@pytest.fixture(scope="session")
def shards(tree: Path) -> Path:
    out = tree.parent / "shards"
    summary = make_shards(tree, out, ShardRequest(images_per_shard=9), workers=1, console=Console(file=io.StringIO()))
    assert {entry["file"] for entry in summary["skipped"]} == CORRUPT
    assert (summary["train"]["images"], summary["val"]["images"]) == (22, 11)
    return out


@pytest.mark.parametrize("augment", [False, True])
def test_folder_and_shards_give_the_same_images_bit_for_bit(tree: Path, shards: Path, augment: bool) -> None:
    for folder, packed in zip(open_folder(tree)[:2], open_shards(shards)[:2], strict=True):
        plain, tarred = (ImageDataset(store, size=224, augment=augment) for store in (folder, packed))
        places = {f"{file.parent.name}/{file.stem}": i for i, file in enumerate(folder.files)}
        compared = 0
        for i in range(len(tarred)):
            key = packed.where(i).rpartition("member ")[2].removesuffix(".jpeg")
            torch.manual_seed(i)
            x, label = tarred[i]
            torch.manual_seed(i)
            y, same = plain[places.pop(key)]
            assert torch.equal(x, y) and label == same
            compared += 1
        assert compared == len(packed.labels)
        assert {str(folder.files[i].relative_to(tree)) for i in places.values()} <= CORRUPT


def test_every_mode_becomes_three_channels_and_rotation_is_left_as_it_is(tree: Path) -> None:
    store = open_folder(tree)[0]
    images = ImageDataset(store, size=224, augment=False)
    good = [i for i, file in enumerate(store.files) if str(file.relative_to(tree)) not in CORRUPT]
    assert {Image.open(io.BytesIO(store.read(i))).mode for i in good} == {"RGB", "L", "CMYK", "RGBA"}
    for i in good:
        x, _ = images[i]
        assert x.shape == (3, 224, 224) and x.dtype == torch.float32 and bool(torch.isfinite(x).all())


def test_corrupt_files_are_named(tree: Path) -> None:
    store = open_folder(tree)[0]
    images = ImageDataset(store, size=224, augment=False)
    found = set()
    for i in range(len(images)):
        try:
            images[i]
        except CorruptError as error:
            found.add(str(Path(error.where).relative_to(tree)))
    assert found == {name for name in CORRUPT if name.startswith("train")}


def run(recipe: str, name: str, path: Path, out: Path, *extra: str) -> tuple[dict[str, Any], str]:
    console = Console(file=io.StringIO(), width=300)
    settings = [*TINY, f"data.name={name}", f"data.path={path}", *extra]
    start(load_recipe(recipe, settings), out, console=console)
    summary = json.loads((out / "summary.json").read_text())
    return summary, console.file.getvalue()  # type: ignore[attr-defined]


def check(summary: dict[str, Any], out: Path, model: str, sites: int, least: float = 1.19) -> None:
    """A smaller network that computes: what summary, plan and weights say agrees."""
    assert len(summary["channels"]) == sites
    assert all(1 <= after <= before for before, after in summary["channels"].values())
    assert any(after < before for before, after in summary["channels"].values())
    assert summary["macs_ratio"] >= least
    pruned = rbprune.load(out, models.build(model)).eval()
    x = torch.zeros(1, 3, 224, 224)
    with torch.no_grad():
        y = pruned(x)
    assert y.shape == (1, 1000) and bool(torch.isfinite(y).all())
    for site, (_, after) in summary["channels"].items():
        assert pruned.get_submodule(site).out_channels == after
    with torch.device("meta"):
        dense = models.build(model)
    counted = count_run(rbprune.trace(dense, x.to("meta")), summary["channels"])
    assert counted.total.macs == summary["macs_after"]


@pytest.mark.parametrize("name", ["folder", "shards"])
def test_resnet50_by_rrbp(name: str, tree: Path, shards: Path, tmp_path: Path) -> None:
    summary, text = run("resnet50-ilsvrc-rrbp", name, {"folder": tree, "shards": shards}[name], tmp_path / "run")
    check(summary, tmp_path / "run", "torchvision:resnet50", sites=24)
    assert ("1 corrupt example left out" in text) == (name == "folder")


def told(text: str) -> list[str]:
    return [line for line in text.splitlines() if "left out" in line]


@pytest.mark.slow
def test_resnet50_by_rrbp_from_a_folder_with_corrupt_files(tree: Path, tmp_path: Path) -> None:
    everything = ["data.limit=24", "data.workers=1"]
    summary, text = run("resnet50-ilsvrc-rrbp", "folder", tree, tmp_path / "run", *everything)
    check(summary, tmp_path / "run", "torchvision:resnet50", sites=24)
    assert f'warning: 1 corrupt example left out (data.corrupt = "skip"): {tree / "val/n01484850"}' in text
    assert sum("warning: 2 corrupt examples" in line for line in told(text)) >= 3, "in every epoch"
    assert round(summary["error_before"] * 11 / 100, 6).is_integer(), "11 of 12 validation images count"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["folder", "shards"])
@pytest.mark.parametrize(
    ("recipe", "model", "only"),
    [
        ("resnet50-ilsvrc-rbp", "torchvision:resnet50", ["layer1.0.conv1", "layer1.0.conv2", "layer2.0.conv2"]),
        ("vgg16-ilsvrc", "torchvision:vgg16", ["features.0", "features.2", "features.5"]),
    ],
)
def test_the_other_recipes(
    recipe: str, model: str, only: list[str], name: str, tree: Path, shards: Path, tmp_path: Path
) -> None:
    path = {"folder": tree, "shards": shards}[name]
    summary, text = run(recipe, name, path, tmp_path / "run", f"prune.only={only}")
    check(summary, tmp_path / "run", model, len(only), least=1.01)
    assert ("corrupt example" in text) == (name == "folder")


def test_a_run_folder_tells_what_the_data_told(tree: Path, tmp_path: Path) -> None:
    given = ["data.image_size=32", "model.classes=none", "prune.epochs=0.5"]
    run("resnet20-cifar10", "folder", tree, tmp_path / "run", *given)
    pair = run_pair(tmp_path / "run")
    assert pair.shape == (3, 32, 32)
    assert pair.dense.linear.out_features == pair.pruned.linear.out_features == len(CLASSES)  # type: ignore[union-attr]


def test_a_recipe_says_which_file_is_corrupt(tree: Path) -> None:
    data = load("folder", tree)
    with pytest.raises(CorruptError, match=r"val/n01484850/n01484850_0.JPEG: not a readable image: it has no known"):
        list(data.test.batches(torch.arange(12), 12, seed=0, augment=False))
