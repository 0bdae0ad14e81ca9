"""``rbprune.prune`` and recipes on little data: it works, or is refused in words with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import rbprune
from rbprune.errors import DataError
from rbprune.runs.start import start
from rbprune.settings import sections
from rbprune.settings.recipe import load_recipe
from tests.networks import stripes, tiny_cnn
from tests.runs.quick import summary_of
from tests.test_api import loader, quiet, trained

SHORT = {
    "prune": {"epochs": 2, "settle": 0, "rate_lr": 0.5, "price": {"nats": 1}, "max_rise": 100},
    "finetune": {"epochs": 2},
}
"""Stages of a few steps, for networks that are hardly trained: the loss may rise."""


def flat_norm() -> nn.Sequential:
    """Batch normalisation where an example has one value of each channel."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(6, 8, 1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def batches(*sizes: int, labels: Tensor | None = None) -> list[tuple[Tensor, Tensor]]:
    images, found = stripes(sum(sizes))
    found = found if labels is None else labels
    return list(zip(images.split(sizes), found.split(sizes), strict=True))


def prune_briefly(model: nn.Module, data: Any, **given: Any) -> rbprune.Result:
    settings: dict[str, Any] = {"options": SHORT, "console": quiet(), **given}
    return rbprune.prune(model, data, example_inputs=stripes(2)[0], **settings)


def test_whoever_says_nothing_spends_the_same_with_every_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a step of the dense network. A shorter recovery than the default one decides alike."""
    monkeypatch.setattr(sections, "RECOVERY_STEPS", 100)
    short, steps = {"prune": {"epochs": 1}}, 16
    check = 6 * 4 / steps / 3  # six passes over four batches, forwards
    looks = 1 / 3 / 2  # a third of a step in every second one, so few are the steps
    budget = 3 * (1 + looks + 1 / 3 + check) + 100 / steps
    for method in ("rbp", "uniform", "taylor", "thinet"):
        result = prune_briefly(trained(), loader(512), method=method, macs_ratio=2, options=short)
        assert result.config.budget == pytest.approx(budget)
        assert result.config.finetune.epochs == 100 / steps
        assert abs(sum(result.summary["dense_epochs"].values()) - budget) <= 1 / steps


def test_the_cost_is_told_at_the_end() -> None:
    console = quiet()
    result = prune_briefly(tiny_cnn(), batches(32, 32), console=console)
    spent = result.summary["dense_epochs"]
    last = console.file.getvalue().splitlines()[-1]  # type: ignore[attr-defined]
    assert last.startswith(f"cost: {spent['prune'] + spent['finetune']:.3g} dense epochs (pruning ")
    assert "+ fine-tuning " in last


@pytest.mark.slow
def test_five_hundred_examples_without_options_do_no_harm() -> None:
    result = rbprune.prune(
        trained(), loader(500), example_inputs=stripes(2)[0], val_loader=loader(200, 1), console=quiet()
    )
    assert result.summary["macs_ratio"] > 2
    assert result.summary["error_after"] <= result.summary["error_before"] + 1
    reports = [event for event in result.events if event["event"] == "epoch" and event["phase"] == "finetune"]
    assert 50 <= len(reports) <= 100, "hundreds of passes, not as many validations"
    assert reports[-1]["epoch"] == reports[-1]["epochs"]


@pytest.mark.parametrize("method", ["rbp", "uniform", "taylor", "thinet"])
def test_a_last_batch_of_one_example_is_left_out_where_it_cannot_be_normalised(method: str) -> None:
    ratio = None if method == "rbp" else 1.5
    result = prune_briefly(flat_norm(), batches(8, 8, 1), method=method, macs_ratio=ratio, val_loader=batches(1, 1))
    assert result.summary["macs_ratio"] > 1.2
    one, whole = [
        prune_briefly(flat_norm(), data, method=method, macs_ratio=ratio)
        for data in (batches(8, 8, 1), batches(8, 8, 8))
    ]
    assert one.summary["dense_epochs"]["finetune"] < whole.summary["dense_epochs"]["finetune"], "two steps of three"


def test_a_single_example_is_trained_on_where_it_can_be_normalised() -> None:
    """Maps of 8 x 8 have a variance of their own, whatever the batch."""
    result = prune_briefly(
        tiny_cnn(), batches(8, 8, 1), options={**SHORT, "prune": {**SHORT["prune"], "price": {"nats": 1e-9}}}
    )
    assert result.summary["macs_ratio"] == 1
    assert result.summary["dense_epochs"]["finetune"] == pytest.approx(2)
    assert prune_briefly(tiny_cnn(), batches(1, 1, 1)).summary["dataset_size"] == 3


@pytest.mark.parametrize(("method", "phase"), [("rbp", "prune"), ("uniform", "finetune")])
def test_only_single_examples_that_cannot_be_normalised_are_refused(method: str, phase: str) -> None:
    ratio = None if method == "rbp" else 1.5
    message = rf"no batch of epoch 1 \({phase}\) can be trained on: .* batch normalisation '4' .* \(batch_size\)"
    with pytest.raises(DataError, match=message):
        prune_briefly(flat_norm(), batches(1, 1, 1), method=method, macs_ratio=ratio)


def test_a_loader_of_one_batch_and_few_steps() -> None:
    result = prune_briefly(trained(), batches(24), val_loader=batches(8))
    assert result.summary["dataset_size"] == 24
    assert result.summary["macs_ratio"] > 1.2


def test_fewer_examples_than_a_batch() -> None:
    few = TensorDataset(*stripes(5))
    result = prune_briefly(trained(), DataLoader(few, batch_size=32))
    assert result.summary["dataset_size"] == 5
    message = "train_loader yields no batch; its 5 examples are fewer than its batch size of 32, and drop_last"
    with pytest.raises(DataError, match=message):
        prune_briefly(tiny_cnn(), DataLoader(few, batch_size=32, drop_last=True))


@pytest.mark.parametrize("name", ["val_loader", "test_loader"])
def test_an_empty_loader_is_named(name: str) -> None:
    message = f"{name} yields no batch; give one with at least one .* or leave it out"
    for empty in ([], DataLoader(TensorDataset(*stripes(0)), batch_size=4)):
        with pytest.raises(DataError, match=message):
            prune_briefly(tiny_cnn(), batches(8), **{name: empty})


@pytest.mark.parametrize("labels", [[0] * 16 + [2] * 16, [1] * 32])
def test_classes_may_be_missing_from_batches_and_from_the_data(labels: list[int]) -> None:
    result = prune_briefly(trained(), batches(16, 16, labels=torch.tensor(labels)), val_loader=batches(16))
    assert result.summary["error_after"] is not None


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.int16])
@pytest.mark.parametrize("method", ["rbp", "taylor"])
def test_labels_of_a_wrong_type_are_refused_with_the_remedy(dtype: torch.dtype, method: str) -> None:
    """Before the first step, whatever the method."""
    data = [(x, y.to(dtype)) for x, y in batches(16, 16)]
    ratio = None if method == "rbp" else 1.5
    message = rf"the loss fails on training batch 0: .*targets {dtype} of shape \(16,\): .*\(targets.long\(\)\)"
    with pytest.raises(DataError, match=message):
        prune_briefly(tiny_cnn(), data, method=method, macs_ratio=ratio)


def test_labels_of_one_byte_are_labels() -> None:
    """Torch's cross-entropy takes them, so the curvature does."""
    found = []
    for kind in (torch.uint8, torch.long):
        model = trained()
        prune_briefly(model, [(x, y.to(kind)) for x, y in batches(16, 16)])
        found.append(model.state_dict())
    assert all(torch.equal(found[0][key], found[1][key]) for key in found[0])


def test_numbers_of_a_wrong_type_are_refused_or_taken() -> None:
    scores = [(x, F.one_hot(y, 3)) for x, y in batches(16, 16)]
    with pytest.raises(DataError, match=r"numbers may have to be floating \(targets.float\(\)\)"):
        prune_briefly(tiny_cnn(), scores, loss_fn=F.binary_cross_entropy_with_logits)
    with pytest.raises(DataError, match=r"fails on training batch 0: .*the targets a list"):
        prune_briefly(tiny_cnn(), [(x, y.tolist()) for x, y in scores], loss_fn=F.mse_loss)
    double = [(x, y.double()) for x, y in scores]
    assert prune_briefly(tiny_cnn(), double, loss_fn=F.mse_loss, val_loader=double).summary["metric"] == "loss"


NET = """
import torch
from torch import nn
from tests.networks import stripes
from tests.test_api_small_data import flat_norm
from torch.utils.data import TensorDataset

def net():
    return flat_norm()

def data(path):
    return TensorDataset(*stripes({count})), TensorDataset(*stripes(8, 1))
"""
RECIPE = """
model = {{ name = "{folder}/mine.py:net" }}
data = {{ name = "{folder}/mine.py:data" }}
pretrain = {{ epochs = 1, lr = 0.01, batch_size = {batch} }}
prune = {{ epochs = 1, batch_size = {batch}, rate_lr = 0.5, price = {{ nats = 1 }} }}
finetune = {{ epochs = 1, batch_size = {batch} }}
"""


def recipe(folder: Path, count: int, batch: int) -> Any:
    (folder / "mine.py").write_text(NET.format(count=count))
    (folder / "mine.toml").write_text(RECIPE.format(folder=folder, batch=batch))
    return load_recipe(str(folder / "mine.toml"))


def test_a_recipe_with_fewer_examples_than_a_batch(tmp_path: Path) -> None:
    start(recipe(tmp_path, 6, 32), tmp_path / "run", console=quiet())
    assert summary_of(tmp_path / "run")["dataset_size"] == 6


@pytest.mark.parametrize(("count", "batch"), [(1, 32), (6, 1)])
def test_a_recipe_of_single_examples_is_refused(tmp_path: Path, count: int, batch: int) -> None:
    with pytest.raises(DataError, match=r"no batch of epoch 1 \(pretrain\) can be trained on: .*'4'"):
        start(recipe(tmp_path, count, batch), tmp_path / "run", console=quiet())


def test_a_recovery_that_learns_by_heart_is_told_with_the_right_remedy() -> None:
    """The training images have drawn labels, those for validation their own."""
    drawn = torch.randint(3, (64,), generator=torch.Generator().manual_seed(1))  # with 0 stripes draws the true ones
    options = {"prune": {"epochs": 2, "lr": 1e-5}, "finetune": {"epochs": 60, "lr": 0.02}}
    given: dict[str, Any] = {"val_loader": batches(128), "macs_ratio": 1.5, "options": options}
    with pytest.warns(UserWarning, match="learns its training data by heart: fewer finetune.epochs"):
        found = prune_briefly(trained(), batches(32, 32, labels=drawn), **given)
    told = {event["epoch"]: event["val_error"] for event in found.events if event.get("phase") == "finetune"}
    cut = [event["val_error"] for event in found.events if event["event"] == "stage"][-1]
    lowest = found.summary["val_lowest"]
    assert lowest["val_error"] == min(cut, *told.values()) < found.summary["val_error_after"]
    assert {0: cut, **told}[lowest["epoch"]] == lowest["val_error"]
