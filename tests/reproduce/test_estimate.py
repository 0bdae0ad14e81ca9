"""Plans before they run: what a run will cost at most, and the data it needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rbprune.data import Data
from rbprune.methods.curvature import UPDATE, update_interval
from rbprune.reproduce.estimate import estimate, find_data
from rbprune.reproduce.experiments import Experiment
from rbprune.runs.build import load_data
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import Settings
from tests.reproduce.small import IBP, QUICK, RBP


def test_a_plan_loads_the_data_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    plain = load_data

    def count(config: Settings) -> Data:
        loaded.append(config.data.name)
        return plain(config)

    monkeypatch.setattr("rbprune.reproduce.estimate.load_data", count)
    estimate(Experiment("x", "x", (RBP, IBP)), QUICK)
    assert len(loaded) == 1


def test_the_plan_bounds_what_the_run_then_spends(folder: Path) -> None:
    costs, data = estimate(Experiment("x", "x", (RBP,)), QUICK)
    summary = json.loads((folder / "demo-rbp" / "summary.json").read_text())
    dense = json.loads((folder / "demo-dense" / "summary.json").read_text())
    size, stages = summary["dataset_size"], len(summary["channels"])
    assert [(c.run, c.phase) for c in costs] == [
        ("demo-dense", "pretrain"),
        ("demo-rbp", f"prune, {stages} stages"),
        ("demo-rbp", "fine-tune"),
    ]
    pretrain, prune, tune = costs
    batch = load_recipe("demo", QUICK).prune.batch_size
    assert prune.steps == stages * -(-size // batch)
    checks = 6 * stages * 4 / -(-size // batch) / 3
    looks = 1 + UPDATE / update_interval(-(-size // batch))
    assert prune.epochs == pytest.approx(stages * looks + checks), "six passes for each cut"
    assert prune.macs == pytest.approx(3 * prune.epochs * size * summary["macs_before"])
    assert pretrain.epochs == pytest.approx(dense["dense_epochs"]["pretrain"])
    assert 0 < summary["dense_epochs"]["prune"] <= prune.epochs
    assert 0 < summary["dense_epochs"]["finetune"] <= tune.epochs
    assert all(cost.seconds > 0 for cost in costs)
    assert [(d.images, d.found) for d in data] == [(size, True)]


def test_the_plan_counts_a_teacher_and_what_a_method_looks_at() -> None:
    given = ("prune.method=cp", "prune.macs_ratio=2", "prune.observe=5", "model.weights=x.safetensors")
    plain, taught = (
        estimate(Experiment("x", "x", (RBP,)), (*QUICK, *given, f"finetune.distill={share}"))[0] for share in (0, 0.5)
    )
    assert taught[1].epochs == pytest.approx(4 / 3 * plain[1].epochs) and taught[1].steps == plain[1].steps
    (observing, _), config = plain, load_recipe("demo", (*QUICK, *given))
    steps, stages = observing.steps / config.prune.epochs, int(observing.phase.split()[1])
    looked = observing.epochs - stages * config.prune.epochs
    batch = 1 / (steps / stages) / 3
    assert looked == pytest.approx(stages * (2 * 5 + 6 * 4) * batch), "and at most the checks of the cuts"


def test_a_budget_bounds_the_plan() -> None:
    """Of a smaller one nothing would be left: with ten steps an epoch the checks of three cuts take 2.5 epochs."""
    costs, _ = estimate(Experiment("x", "x", (RBP,)), (*QUICK, "budget=6", "model.weights=x.safetensors"))
    assert sum(cost.epochs for cost in costs) == pytest.approx(6) and costs[-1].epochs > 0


def test_data_that_is_missing_has_its_usual_size_and_is_named(tmp_path: Path) -> None:
    found = find_data(load_recipe("vgg16-cifar10", [f"data.path={tmp_path}"]))
    assert not found.found and str(tmp_path) in found.note
    assert (found.images, found.shape) == (48_000, (3, 32, 32))
