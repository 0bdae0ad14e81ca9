"""``rbprune.prune`` on a user's own model, loader and loss."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rbprune
from rbprune.errors import ConfigError
from tests.networks import stripes, tiny_cnn

OPTIONS = ["prune.epochs=6", "prune.rate_lr=0.05", "finetune.epochs=3", "prune.price={nats=60}"]


def loader(count: int, seed: int = 0) -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(*stripes(count, seed)), batch_size=32)


def trained() -> nn.Module:
    torch.manual_seed(0)
    model = tiny_cnn()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(4):
        for x, y in loader(512):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    return model


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_prune_save_load(tmp_path: Path) -> None:
    model = trained()
    kind, training = type(model), model.training
    x, _ = stripes(2)
    state = torch.get_rng_state()
    result = rbprune.prune(
        model, loader(512), example_inputs=x, val_loader=loader(200, 1), method="rbp", options=OPTIONS, console=quiet()
    )
    assert torch.equal(state, torch.get_rng_state())
    assert result.model is model
    assert type(model) is kind
    assert model.training == training
    summary = result.summary
    assert summary["macs_ratio"] > 2
    assert summary["error_after"] < 10
    assert summary["dataset_size"] == 512
    wanted = """method seed error_before error_after macs_before macs_after macs_ratio params_before params_after
        params_ratio channels undecided dense_epochs seconds versions"""
    assert set(wanted.split()) <= set(summary)
    assert summary["channels"]["0"] == [6, model[0].out_channels]
    folder = result.save(tmp_path / "out")
    names = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "plan.json", "config.toml", "events.jsonl", "summary.json", "report.html"} <= names
    assert json.loads((folder / "summary.json").read_text())["macs_after"] == summary["macs_after"]
    fresh = rbprune.load(folder, tiny_cnn())
    assert torch.equal(fresh.eval()(x), model.eval()(x))
    with pytest.raises(ConfigError, match="not empty"):
        result.save(folder)


@pytest.mark.parametrize(("rates", "beside"), [("adam", 0.0), ("fixed-point", 1 / 18)])
def test_the_cost_is_the_share_of_dense_macs(rates: str, beside: float) -> None:
    """A step of the network as it is; a look of the fixed point in every sixth of 96; with each cut an epoch of forward
    passes for batch normalisation (there are fewer than 50 batches) and four passes over four of 16 batches, while the
    channels are masked, two more for a forecast; of which the first measures the network as the stage finds it."""
    options = [*OPTIONS, "prune.settle=0", f"prune.rates={rates}"]
    result = rbprune.prune(trained(), loader(512), example_inputs=stripes(2)[0], options=options, console=quiet())
    stages = [event for event in result.events if event["event"] == "stage"]
    ratios = [1.0] + [1 / stage["macs_ratio"] for stage in stages]
    assert not any(stage["taken_back"] for stage in stages), "every cut is made once"
    assert all(2 / 3 * 6 < stage["epochs"] <= 6 for stage in stages), "at most a third of them closes the stage"
    trained_steps = sum(stage["epochs"] * share for stage, share in zip(stages, ratios, strict=False))
    forward, passes = 4 / 16 / 3, 6 if rates == "fixed-point" else 4
    wanted = (1 + beside) * trained_steps + (1 / 3 + passes * forward) * sum(ratios[:-1])
    assert result.summary["dense_epochs"]["prune"] == pytest.approx(wanted, rel=1e-6)
    assert result.summary["dense_epochs"]["finetune"] == pytest.approx(3 * ratios[-1], rel=1e-6)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU()) for _ in range(2))
        self.c = nn.Linear(12, 3)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return self.c(torch.cat([self.a(left), self.b(right)], 1).mean((2, 3)))


@pytest.mark.parametrize("method", ["rbp", "taylor", "thinet", "cp"])
@pytest.mark.parametrize("named", [False, True])
def test_several_inputs_in_order_or_by_name(method: str, named: bool) -> None:
    """A loader makes a list of a tuple of inputs."""
    x, y = stripes(128)
    pairs = [({"left": a, "right": a} if named else (a, a), b) for a, b in zip(x, y, strict=True)]
    batches: DataLoader[object] = DataLoader(pairs, batch_size=32)  # type: ignore[arg-type]
    example = next(iter(batches))[0]
    assert isinstance(example, dict if named else list)
    options = ["prune.epochs=1", "finetune.epochs=1", "prune.rate_lr=0.3", "prune.price={nats=1000}"]
    options += [] if method == "rbp" else ["prune.macs_ratio=1.5"]
    model = Two()
    result = rbprune.prune(
        model, batches, example_inputs=example, val_loader=batches, method=method, options=options, console=quiet()
    )
    assert result.summary["macs_ratio"] > 1.05
    assert model(x, x).shape == (128, 3)


def test_a_budget_too_small_for_a_step_is_told() -> None:
    options = [*OPTIONS, "budget=0.01"]
    result = rbprune.prune(trained(), loader(512), example_inputs=stripes(2)[0], options=options, console=quiet())
    told = [event["message"] for event in result.events if event["event"] == "warning"]
    assert any("has no training step: its epochs or the budget are too small" in message for message in told)


def test_any_mean_loss_and_any_target() -> None:
    console = quiet()
    torch.manual_seed(0)
    x = torch.randn(256, 6)
    y = x[:, :1] - 2 * x[:, 1:2]
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
    batches = [(x[i : i + 32], y[i : i + 32]) for i in range(0, 256, 32)]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for inputs, targets in batches * 10:
        optimizer.zero_grad()
        F.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    result = rbprune.prune(
        model,
        batches,
        example_inputs=x[:2],
        val_loader=batches,
        price=rbprune.Price(nats=3),
        loss_fn=F.mse_loss,
        options=["prune.epochs=20", "finetune.epochs=20"],
        console=console,
    )
    assert result.summary["macs_ratio"] > 1.05
    assert result.summary["error_after"] == pytest.approx(F.mse_loss(model(x), y).item(), rel=1e-5)
    assert result.config.prune.price == rbprune.Price(nats=3)
    assert result.summary["metric"] == "loss"
    assert result.summary["error_after"] < result.summary["error_before"], "the mean loss is reported"
    assert "val loss" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "%" not in console.file.getvalue()  # type: ignore[attr-defined]


def test_asked_for_macs_rbp_finds_the_price() -> None:
    x, _ = stripes(2)
    short = ["prune.epochs=2", "finetune.epochs=1"]
    result = rbprune.prune(trained(), loader(512), example_inputs=x, macs_ratio=4, options=short, console=quiet())
    assert 4 <= result.summary["macs_ratio"] < 5
    assert [event["event"] for event in result.events].count("stage") == 3
    assert not any("price" in event.get("message", "") for event in result.events), "there is none to complain of"


def test_the_same_seed_gives_the_same_bits() -> None:
    states = []
    for _ in range(2):
        model = trained()
        rbprune.prune(model, loader(256), example_inputs=stripes(2)[0], options=OPTIONS, seed=5, console=quiet())
        states.append(model.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_a_shuffling_loader_is_repeatable_and_modes_are_kept() -> None:
    states = []
    for _ in range(2):
        model = trained().eval()
        shuffling = DataLoader(TensorDataset(*stripes(256)), batch_size=32, shuffle=True)
        rbprune.prune(model, shuffling, example_inputs=stripes(2)[0], options=OPTIONS, console=quiet())
        assert not any(module.training for module in model.modules())
        states.append(model.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_an_absurd_price_stops_at_what_a_cut_may_cost() -> None:
    """A thousand times the default price: nearly all channels fail to earn it, and most of them stay all the same."""
    console, model, x = quiet(), trained(), stripes(2)[0]
    short = {"prune": {"epochs": 6}, "finetune": {"epochs": 0}}
    result = rbprune.prune(
        model,
        loader(512),
        example_inputs=x,
        val_loader=loader(300, 1),
        price=rbprune.Price(nats_per_example=1000),
        options=short,
        console=console,
    )
    (dense,) = [event for event in result.events if event["event"] == "dense"]
    stages = [event for event in result.events if event["event"] == "stage"]
    assert sum(stage["taken_back"] for stage in stages) > 0
    assert "channels taken back" in console.file.getvalue()  # type: ignore[attr-defined]
    limit = 0.1 * max(dense["explained"], math.log(3))
    assert all(stage["rise"] <= limit for stage in stages), "nats per example above the dense network's"
    assert result.summary["error_after"] <= result.summary["error_before"] + 5
    assert result.summary["macs_ratio"] > 1


def test_a_bad_verdict_is_a_warning() -> None:
    x, _ = stripes(2)
    absurd = rbprune.Price(nats_per_example=1000)
    short = {"prune": {"epochs": 4, "max_rise": 100}, "finetune": {"epochs": 0}}
    with pytest.warns(UserWarning, match="the verdict on this run is bad: The error rose by"):
        result = rbprune.prune(
            trained(),
            loader(512),
            example_inputs=x,
            val_loader=loader(512),
            price=absurd,
            options=short,
            console=quiet(),
        )
    assert result.summary["verdict"]["level"] == "bad"


class Listener:
    """Remembers what it is told; may lose its connection."""

    def __init__(self, fails: bool = False) -> None:
        self.events: list[dict[str, object]] = []
        self.closed, self.fails = False, fails

    def log(self, event: Mapping[str, object]) -> None:
        if self.fails:
            raise ConnectionError("gone")
        self.events.append(dict(event))

    def close(self) -> None:
        self.closed = True


def test_trackers_hear_every_event_and_cannot_end_a_run() -> None:
    listener, failing = Listener(), Listener(fails=True)
    result = rbprune.prune(
        trained(),
        loader(64),
        example_inputs=stripes(2)[0],
        val_loader=loader(32),
        method="uniform",
        macs_ratio=1.5,
        options=["finetune.epochs=1"],
        console=quiet(),
        trackers=[failing, listener],
    )
    warnings = [event for event in result.events if event["event"] == "warning"]
    assert listener.events[1:] == result.events[:1] + result.events[2:]  # the warning came while the first was told
    assert [event["message"] for event in warnings] == [
        "the tracker Listener failed in log: ConnectionError: gone; the run goes on without it"
    ]
    assert not listener.closed  # it is the caller's
    with pytest.raises(ConfigError, match="trackers has 3, which is no tracker"):
        rbprune.prune(trained(), loader(64), example_inputs=stripes(2)[0], trackers=[3])  # type: ignore[list-item]


def test_a_search_tells_trackers_of_what_it_found() -> None:
    listener = Listener()
    result = rbprune.prune(
        trained(),
        loader(64),
        example_inputs=stripes(2)[0],
        val_loader=loader(64, seed=1),
        method="uniform",
        max_error_rise=90.0,
        options=["finetune.epochs=1"],
        console=quiet(),
        trackers=[listener],
    )
    assert listener.events == result.events


def test_what_the_model_takes_is_seen_in_the_first_batch_where_nobody_says_it() -> None:
    """The order of a loader that shuffles, and with it the network, are as they are with example_inputs."""
    found = []
    for given in ({}, {"example_inputs": stripes(2)[0]}):
        model = trained()
        shuffled = DataLoader(TensorDataset(*stripes(256)), batch_size=32, shuffle=True)
        torch.manual_seed(5)
        result = rbprune.prune(model, shuffled, options=[*OPTIONS, "prune.epochs=2"], console=quiet(), **given)
        found.append((result.summary["channels"], [p.detach().clone() for p in model.parameters()]))
    (ours, weights), (wanted, others) = found
    assert ours == wanted and all(map(torch.equal, weights, others))
