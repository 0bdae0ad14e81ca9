"""A run whose data leaves out corrupt examples: told, counted rightly, resumed to the same bits."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console

from rbprune.errors import DataError
from rbprune.runs.build import load_data, make_run_data
from rbprune.runs.resume import resume
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import RuntimeSettings, Settings
from rbprune.train.engine import Engine
from rbprune.train.evaluate import evaluate
from tests.runs.quick import comparable, digest, events, stop_after

MINE = """
import torch
from torch import nn
from torch.utils.data import Dataset
from rbprune.errors import CorruptError

BAD = {bad}

class Rows(Dataset):
    def __init__(self, name, bad):
        self.name, self.bad, self.targets = name, bad, [i % 2 for i in range(20)]
    def __len__(self):
        return 20
    def __getitem__(self, i):
        if i in self.bad:
            raise CorruptError(f"{{self.name}} {{i:02d}}", "broken")
        return torch.full((3, 6, 6), float(i % 2)) + 0.1 * torch.randn(3, 6, 6), i % 2

def data(path):
    return Rows("train", BAD["train"]), Rows("test", BAD["test"])

def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
"""
RECIPE = """
[model]
name = "{folder}/mine.py:net"
[data]
name = "{folder}/mine.py:data"
corrupt = "skip"
[pretrain]
epochs = 2
batch_size = 2
lr = 0.1
[prune]
epochs = 1
batch_size = 2
lr = 0.01
price = {{ nats = 1 }}
settle = 0
[finetune]
epochs = 2
batch_size = 2
lr = 0.01
[runtime]
threads = 1
recalibrate = 3
checkpoint_seconds = 1000
"""
BAD = {"train": [0, 2, 3, 5, 7, 11, 12, 13, 17, 18], "test": [1, 2, 4]}
"""Half of the training data, so that some batches of two are left with nothing."""


def recipe(folder: Path, bad: dict[str, list[int]] = BAD, *overrides: str) -> Settings:
    (folder / "mine.py").write_text(MINE.format(bad=bad))
    (folder / "mine.toml").write_text(RECIPE.format(folder=folder))
    return load_recipe(str(folder / "mine.toml"), overrides)


def quiet() -> Console:
    return Console(file=io.StringIO(), width=300)


@pytest.mark.parametrize("workers", [0, 1])
def test_every_epoch_says_what_was_left_out(tmp_path: Path, workers: int) -> None:
    console = quiet()
    start(recipe(tmp_path, BAD, f"data.workers={workers}"), tmp_path / "run", console=console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    train = 'warning: 10 corrupt examples left out (data.corrupt = "skip"): train 00, train 02, train 03 and 7 more'
    assert text.count(train) >= 5, "two epochs of pretraining, one of the stage, two of fine-tuning"
    assert text.count('3 corrupt examples left out (data.corrupt = "skip"): test 01, test 02, test 04') == 2
    order = [event["event"] for event in events(tmp_path / "run")]
    assert all(order[i + 1] == "warning" for i, name in enumerate(order) if name == "epoch")


def test_some_batches_are_empty_and_only_the_rest_is_evaluated(tmp_path: Path) -> None:
    data = load_data(recipe(tmp_path))
    data = make_run_data(data, seed=0)
    sizes = [len(y) for number in range(3) for _, y in data.train(2).epoch(number)]
    assert len(sizes) == 30 and 0 in sizes and 2 in sizes

    class Zero(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tensor([1.0, 0.0]).expand(len(x), 2)

    assert data.test is not None
    score = evaluate(Engine(RuntimeSettings(accelerator="cpu")), Zero(), data.test, F.cross_entropy)
    assert score.value == pytest.approx(100 * 9 / 17), "of 17 examples that are left, 9 are of class 1"


@pytest.mark.parametrize("steps", [1, 3, 7, 8, 15, 20])
def test_interrupted_it_ends_with_the_same_bits_and_says_the_same(
    tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = recipe(tmp_path)
    start(config, tmp_path / "whole", console=quiet())
    stop_after(steps, config, tmp_path / "run", monkeypatch)
    resume(tmp_path / "run", console=quiet())
    assert digest(tmp_path / "run") == digest(tmp_path / "whole")
    assert comparable(tmp_path / "run") == comparable(tmp_path / "whole")


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("train", r"no training example could be read in epoch 1 \(pretrain\): all were left out as corrupt"),
        ("test", "no example could be read for evaluation: all were left out as corrupt"),
    ],
)
def test_nothing_left_at_all_is_an_error(tmp_path: Path, part: str, message: str) -> None:
    bad = {"train": [], "test": [], part: list(range(20))}
    if part == "train":
        bad["train"].remove(1)  # which a limit of 4 does not choose
    config = recipe(tmp_path, bad, *(["data.limit=4"] if part == "train" else []))
    with pytest.raises(DataError, match=message):
        start(config, tmp_path / "run", console=quiet())


def test_data_that_is_corrupt_throughout_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="every training example is corrupt"):
        load_data(recipe(tmp_path, {"train": list(range(20)), "test": []}))
