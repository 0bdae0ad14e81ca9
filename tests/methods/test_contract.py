"""What every method must do: shrink a network exactly, say why, and give the same bits again, resumed or not."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

from rbprune import Pruner, trace
from rbprune.methods import METHODS, Price, Stage
from rbprune.runs.folder import RunFolder
from rbprune.settings.recipe import build_settings
from rbprune.train.checkpoint import load_checkpoint
from rbprune.train.runner import Runner
from rbprune.train.state import RunData
from rbprune.train.stream import LoaderStream
from rbprune.utils.interrupt import Interrupted
from tests.networks import relative_error, stripes, tiny_cnn

RESIDUAL = ("rrbp", "dds-blocks")
OPTIONS: dict[str, dict[str, Any]] = {
    "rbp": {"rate_lr": 0.3},
    "rbp to 2x": {"rate_lr": 0.3, "rates": "fixed-point", "macs_ratio": 2.0},
    "rbp with factors": {"rate_lr": 0.3, "rates": "fixed-point", "macs_ratio": 2.0, "compensate": "factors"},
    "uniform with weights": {"compensate": "weights"},
    "ibp": {"rate_lr": 0.3},
    "rrbp": {"rate_lr": 0.3, "rates": "fixed-point"},
    "rbp with sums": {"rate_lr": 0.3, "sums": True},
    "rrbp with sums": {"rate_lr": 0.3, "rates": "fixed-point", "sums": True},
    "uniform with sums": {"sums": True},
    "bc": {"rate_lr": 0.5, "options": {"kl_weight": 3.0}},
    "rbc": {"rate_lr": 0.5, "options": {"kl_weight": 3.0}},
    "bc-gnj": {"rate_lr": 0.3, "threshold": -4.0},
    "sbp": {"rate_lr": 0.3, "options": {"kl_weight": 5.0}},
    "bmrs": {"rate_lr": 0.5, "options": {"kl_weight": 20.0}},
    "dds": {"rate_lr": 0.05, "options": {"gamma": 0.5}},
    "dds-blocks": {"rate_lr": 0.05, "options": {"gamma": 5.0}},
}


class Block(nn.Module):
    """A residual block for inputs of 1 x 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(1, 6, 3, padding=1), nn.Linear(6, 3)
        self.a, self.norm, self.b = nn.Conv2d(6, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.stem(x))
        return self.head(F.relu(y + self.b(F.relu(self.norm(self.a(y))))).mean((2, 3)))


def network(method: str) -> nn.Module:
    torch.manual_seed(0)
    return Block() if method in RESIDUAL or "sums" in method else tiny_cnn(8)


def runner(method: str, folder: Path | None) -> Runner:
    images, labels = stripes(256)
    batches = [(images[i : i + 32], labels[i : i + 32]) for i in range(0, 256, 32)]
    name = method.partition(" ")[0]
    needs = METHODS[name].stage.needs_ratio
    prune: dict[str, Any] = {"method": name, "epochs": 4, "lr": 1e-2, "price": {"nats": 60}, "observe": 4}
    prune |= OPTIONS.get(method, {}) | ({"macs_ratio": 2.0} if needs else {})
    if method in ("slimming", "tp-bn"):
        prune |= {"only": ["0", "4"], "macs_ratio": 1.5}
    raw = {
        "model": {"name": "tiny"},
        "data": {"name": "loader"},
        "prune": prune,
        "finetune": {"epochs": 2, "lr": 1e-2},
        "runtime": {"recalibrate": 2, "threads": 1},
    }
    stream = LoaderStream(batches, 256)
    data = RunData(train=lambda batch_size: stream, val=LoaderStream(batches), test=LoaderStream(batches))
    if folder is not None:
        folder.mkdir(exist_ok=True)
    files = None if folder is None else RunFolder(folder)
    console = Console(file=io.StringIO())
    return Runner(build_settings(raw), network(method), images[:2], data, F.cross_entropy, files=files, console=console)


def weights(found: Runner) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in found.model.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


VARIANTS = (
    "rbp to 2x",
    "rbp with sums",
    "rrbp with sums",
    "uniform with sums",
    "rbp with factors",
    "uniform with weights",
)


@pytest.mark.parametrize("method", [*METHODS, *VARIANTS])
def test_it_shrinks_the_network_says_why_and_repeats_itself(method: str, tmp_path: Path) -> None:
    first = runner(method, None)
    summary = first.run()
    assert summary["macs_ratio"] > 1.05
    gone = {name for name, (_, after) in summary["channels"].items() if not after}
    assert all(after <= before for before, after in summary["channels"].values())
    # a channel stays of every site, but for those that go with a whole branch, which is what dds-blocks is for
    assert bool(gone) == bool(summary["removed_blocks"]) == (method == "dds-blocks")
    assert trace(first.model, torch.zeros(2, 1, 8, 8)).macs() == summary["macs_after"]
    stages = [event for event in first.journal.events if event["event"] == "stage"]
    assert len(stages) == len(first.pruner)
    for stage in stages:
        assert stage["diagnostic"] == METHODS[method.partition(" ")[0]].stage.diagnostic
        for name, (before, after) in stage["channels"].items():
            assert len(stage["values"][name]) == before >= after
    if method in ("thinet", "cp"):
        assert all(0 <= error < 1 for stage in stages for error in stage["notes"].values())
    second = runner(method, None)
    second.run()
    assert same(weights(first), weights(second))

    stopped = runner(method, tmp_path / "run")
    steps = iter(range(1, 1000))

    def breathe(signals: Any) -> None:
        current = stopped.current
        assert current is not None
        if method.endswith("rbp with sums") and (current.stage is None or "stem" not in current.stage.names):
            return  # the steps that count are those of the stage of the sum
        if next(steps) == 13:
            stopped._save()
            raise Interrupted(2, "stop")

    stopped._between_steps = breathe  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        stopped.run()
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in stopped.model.modules())
    resumed = runner(method, tmp_path / "run")
    checkpoint, path, _ = load_checkpoint(RunFolder(tmp_path / "run").checkpoints)
    resumed.restore(checkpoint, path.name, [])
    resumed.run()
    assert same(weights(first), weights(resumed))


@pytest.mark.filterwarnings("ignore:every channel of")
@pytest.mark.parametrize("method", METHODS)
def test_what_it_removes_is_what_it_masks(method: str) -> None:
    """The cut network is the folded one with zeros in place of the channels that went."""
    model = network(method).double()
    images, labels = stripes(64)
    images = images.double()
    ratio = 1.5 if METHODS[method].stage.needs_ratio else None
    only = ["0", "4"] if method in ("slimming", "tp-bn") else None
    pruner = Pruner(
        model, images[:1], dataset_size=64, method=method, price=Price(nats=60), macs_ratio=ratio, only=only
    )
    stage: Stage = pruner.stage(0)
    model.train()
    for _ in range(3):
        optimizer = torch.optim.SGD(stage.param_groups(1e-3, 1e-2))
        (F.cross_entropy(model(images), labels) + stage.kl()).backward()
        optimizer.step()
    if stage.observes:
        stage.observe([(images, labels)], F.cross_entropy)
    if stage.module is not None and not stage.needs_ratio:
        with torch.no_grad():  # whatever was learned, let a third of the channels be redundant
            for parameter in stage.module.parameters():
                if parameter.dim() == 1:
                    parameter[::3] = {"rate": 0.9, "minus lambda": 0.0}.get(stage.diagnostic, float(parameter[0]))
    graph = pruner.graph
    seen: dict[str, Any] = {}
    plain = graph.remove

    def remove(drop: dict[str, list[int]], **options: Any) -> Any:
        model.eval()
        with torch.no_grad(), graph.mask(drop):
            seen["masked"] = model(images)
        seen["drop"] = drop
        return plain(drop, **options)

    graph.remove = remove  # type: ignore[method-assign, assignment]
    stage.finish(batches=[])
    with torch.no_grad():
        assert relative_error(seen["masked"], model(images)) < 1e-9
    if stage.needs_ratio or stage.diagnostic in ("rate", "minus lambda"):
        assert any(seen["drop"].values())
