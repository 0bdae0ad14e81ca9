"""Stages over a model for a loop of one's own, and what is refused before they begin."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from safetensors.torch import save_file
from torch import Tensor, nn

import rbprune
from rbprune import Price, Pruner, models
from rbprune.errors import ConfigError, NumericalError
from rbprune.methods import PruningSettings
from rbprune.methods.curvature import EVERY, UPDATE
from rbprune.methods.rbp import DiracStage
from rbprune.pruner import DenseMeasures
from rbprune.runs.build import make_runner
from rbprune.runs.folder import RunFolder
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import RECOVERY_STEPS, STAGE_STEPS
from rbprune.train.runner import Runner
from rbprune.utils.modes import evaluating
from tests.networks import learn_stripes, pruner, stripes, tiny_cnn, train_stage


def test_own_loop_ends_smaller_and_recalibrated() -> None:
    torch.manual_seed(0)
    model = tiny_cnn()
    x, y = stripes(512)
    pruner = Pruner(model, x[:2], dataset_size=512, price=Price(nats=40))
    before = pruner.graph.macs()
    names = []
    for stage in pruner:
        names.append(stage.names)
        optimizer = torch.optim.Adam(stage.param_groups(lr=3e-3, rate_lr=3e-2))
        for step in range(120):
            rows = slice(step % 8 * 64, step % 8 * 64 + 64)
            loss = F.cross_entropy(model(x[rows]), y[rows]) + stage.kl()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert names == [["0"], ["4"], ["8"]]
    assert pruner.graph.macs() < before / 2
    test_x, test_y = stripes(300, seed=1)
    assert float((model.eval()(test_x).argmax(1) == test_y).float().mean()) > 0.9
    assert pruner.plan.tensors["0.weight"]["0"] == pruner.graph["0"].alive.tolist()


def test_leaving_the_loop_takes_the_noise_off() -> None:
    model = tiny_cnn()
    for _stage in Pruner(model, torch.zeros(2, 1, 8, 8), dataset_size=10):
        break
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert model[0].out_channels == 6


def test_who_must_be_told_and_who_cannot_be_told() -> None:
    with pytest.raises(ConfigError, match=r"'uniform' must be told how much to cut: set prune\.macs_ratio=2"):
        pruner("uniform", tiny_cnn())
    with pytest.raises(ConfigError, match="'rbp' decides layer by layer how much to cut"):
        pruner("rbp", tiny_cnn(), macs_ratio=2.0, rates="adam")


def test_options_are_those_of_the_method() -> None:
    with pytest.raises(ConfigError, match="options.gama is no option of 'dds'; did you mean 'gamma'.; it has: gamma"):
        pruner("dds", tiny_cnn(), options={"gama": 0.5})
    with pytest.raises(ConfigError, match="'uniform'; it has none"):
        pruner("uniform", tiny_cnn(), macs_ratio=2.0, options={"l1": 0.5})


DECIDED = ("method", "price", "rates", "rate_lr", "rate_init", "noise", "threshold", "least", "options", "keep", "only")
DECIDED += ("confidence", "max_rise")
"""The settings of pruning that a network has a say in, or that decide what is left of it."""
NET = """
from torch import nn

def net(classes):
    return nn.Sequential(nn.Conv2d(1, 4, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(144, classes))
"""


def test_whoever_says_nothing_gets_the_same_settings_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``prune``, ``Pruner`` and a recipe of nothing but model and data decide alike for the same network."""
    monkeypatch.setattr(Runner, "run", lambda self: {})
    (tmp_path / "net.py").write_text(NET)
    model, example = models.build(f"{tmp_path}/net.py:net", classes=10), torch.zeros(2, 1, 28, 28)
    save_file(model.state_dict(), tmp_path / "net.safetensors")
    (tmp_path / "recipe.toml").write_text(
        f'model = {{ name = "{tmp_path}/net.py:net", weights = "{tmp_path}/net.safetensors" }}\n'
        'data = { name = "mnist-subset" }\n'
    )
    recipe = load_recipe(str(tmp_path / "recipe.toml"))
    run = make_runner(recipe, RunFolder(tmp_path / "run"), Console(quiet=True), []).settings
    batches = [(example, torch.zeros(2, dtype=torch.long))]
    call = rbprune.prune(copy.deepcopy(model), batches, example_inputs=example, console=Console(quiet=True)).config
    loop = Pruner(model, example, dataset_size=2, loss_fn=F.cross_entropy).settings
    assert run.prune.epochs is not None and call.prune.epochs == STAGE_STEPS, "one step makes an epoch here"
    assert run.prune.epochs * (6000 // run.prune.batch_size) == pytest.approx(STAGE_STEPS), "steps count, not epochs"
    assert call.prune.changed(epochs=0) == run.prune.changed(epochs=0)
    assert call.finetune.changed(epochs=0) == run.finetune.changed(epochs=0)
    steps = 6000 // run.finetune.batch_size
    assert run.finetune.length * steps == pytest.approx(RECOVERY_STEPS) and call.finetune.length == RECOVERY_STEPS
    stages = len(Pruner(model, example, dataset_size=2))
    for found, size in ((run, steps), (call, 1)):  # without batch normalisation nothing is recalibrated
        check = 6 * min(4, size) / 3  # six passes over four batches, where there are as many
        wanted = stages * (STAGE_STEPS * (1 + UPDATE / EVERY) + check) + RECOVERY_STEPS
        assert found.budget is not None and found.budget * size == pytest.approx(wanted), "in steps, alike for both"
    assert (call.pruning_share, call.seed, call.runtime) == (run.pruning_share, run.seed, run.runtime)
    assert {name: getattr(loop, name) for name in DECIDED} == {name: getattr(run.prune, name) for name in DECIDED}
    assert (loop.price, loop.rates, loop.rate_lr, loop.ratio) == (None, "fixed-point", 0.05, None), "the price is open"
    given = {"macs_ratio", "params_ratio", "latency_ratio", "latency", "round_to"}
    given |= {"compensate", "sums", "blocks", "downsampling"}
    assert set(PruningSettings.model_fields) - set(DECIDED) == given


def test_a_loop_that_does_not_name_its_loss_finds_out_and_comes_to_the_same_rates() -> None:
    """Without ``loss_fn`` the first gradients tell that it is cross-entropy; nothing else is different."""
    images, labels = stripes(64)
    found = []
    for loss_fn in (None, F.cross_entropy):
        torch.manual_seed(0)
        stage = Pruner(tiny_cnn(), images[:1], dataset_size=64, loss_fn=loss_fn, only=["0"]).stage(0)
        assert isinstance(stage, DiracStage)
        train_stage(stage, images, labels, 4)
        found.append((stage.settings.step_size, stage.fixed_point, stage.rates["0"].clone()))
        stage.abandon()
    assert found[0][:2] == found[1][:2] == (0.05, True)
    assert torch.equal(found[0][2], found[1][2])


def linear(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, outputs))


def test_how_rates_are_found_follows_from_what_is_known_of_the_loss() -> None:
    cases = (
        (linear(1), None, "adam", 0.01),  # neither a loss nor scores of classes
        (linear(3), None, "auto", None),  # the first gradients will tell
        (linear(3), F.mse_loss, "fixed-point", 0.05),
        (linear(3), lambda outputs, targets: outputs.square().mean(), "auto", None),  # if it has a second derivative
    )
    for model, loss_fn, rates, rate_lr in cases:
        decided = Pruner(model, torch.zeros(2, 3), dataset_size=9, loss_fn=loss_fn).settings
        assert (decided.rates, decided.rate_lr) == (rates, rate_lr)
    per_batch = Pruner(linear(3), torch.zeros(2, 3), dataset_size=9, noise="batch").settings
    assert per_batch.rates == "adam", "the fixed point looks at single examples"


def test_deciding_changes_neither_the_model_nor_the_random_numbers() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    example = torch.randn(2, 3)
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    Pruner(model, example, dataset_size=9)
    assert torch.equal(torch.rand(3), wanted)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("size", [0, -3])
def test_there_is_at_least_one_training_example(size: int) -> None:
    with pytest.raises(ConfigError, match=f"dataset_size is the number of training examples; {size} is not one"):
        Pruner(tiny_cnn(), torch.zeros(1, 1, 8, 8), dataset_size=size)


def test_settings_may_be_given_whole_and_changed_by_name() -> None:
    given = PruningSettings(method="ibp", threshold=0.4, only=["0"])
    found = Pruner(tiny_cnn(), torch.zeros(1, 1, 8, 8), dataset_size=9, settings=given, threshold=0.6)
    assert (found.settings.method, found.settings.threshold, found.stages) == ("ibp", 0.6, [["0"]])
    with pytest.raises(ConfigError, match="treshold: unknown key; did you mean 'threshold'"):
        Pruner(tiny_cnn(), torch.zeros(1, 1, 8, 8), dataset_size=9, treshold=0.6)


def test_the_old_name_of_a_methods_options_still_works() -> None:
    assert pruner("dds", tiny_cnn(), method_options={"gamma": 0.5}).settings.options == {"gamma": 0.5}


def test_a_method_that_compares_gets_a_copy_of_the_network_before_any_cut() -> None:
    model, (images, labels) = tiny_cnn(), stripes(32)
    found = pruner("cp", model, macs_ratio=1.2, only=["0", "4"])
    assert found.dense is None
    for stage in found:
        assert stage.context.dense is found.dense
        stage.observe([(images, labels)], F.cross_entropy)
    assert found.dense is not None
    assert found.dense[0].out_channels == 6 > model[0].out_channels  # type: ignore[index]
    assert not any(parameter.requires_grad for parameter in found.dense.parameters())


def test_under_a_target_every_stage_knows_the_later_ones() -> None:
    found = pruner("rbp", tiny_cnn(), rates="fixed-point", macs_ratio=2.0)
    later = []
    for number in range(len(found)):
        stage = found.stage(number)
        later.append(stage.context.later)
        stage.abandon()
    assert later == [("4", "8"), ("8",), ()]
    plain = pruner("rbp", tiny_cnn()).stage(0)
    assert (plain.context.later, plain.context.target) == ((), None)
    plain.abandon()


def test_a_target_may_be_parameters() -> None:
    found = pruner("l1", tiny_cnn(), params_ratio=2.0)
    before = found.graph.params()
    for stage in found:
        stage.finish(batches=[])
    assert 2 <= before / found.graph.params() < 2.3


def measured_pruner(**settings: Any) -> tuple[Pruner, list[tuple[Tensor, Tensor]]]:
    """A pruner of a trained network, and batches to measure it on."""
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn(), stripes(192)
    learn_stripes(model)
    found = Pruner(model, images[:1], dataset_size=512, loss_fn=F.cross_entropy, **settings)
    return found, list(zip(images.split(64), labels.split(64), strict=True))


def test_measuring_the_dense_network_sets_the_price_and_the_limit_of_a_cut() -> None:
    found, batches = measured_pruner()
    assert (found.settings.price, found.dense_measures) == (None, None)
    state = {name: tensor.clone() for name, tensor in found.model.state_dict().items()}
    measures = found.measure(iter(batches))
    assert all(torch.equal(state[name], tensor) for name, tensor in found.model.state_dict().items())
    with torch.no_grad(), evaluating(found.model):
        losses = [float(F.cross_entropy(found.model(x), y)) for x, y in batches]
    assert measures.loss == pytest.approx(sum(losses) / 3)
    assert measures.explained is not None and 0.8 < measures.explained < math.log(3)
    assert found.dense_measures == measures
    price = found.settings.price
    assert price is not None and price.nats_per_example == pytest.approx(0.87 * measures.explained, rel=0.006)
    assert price.nats is not None and price.nats < 20, "512 examples have few nats"
    stage = found.stage(0)
    assert stage.context.limit == pytest.approx(measures.loss + 0.1 * measures.explained)
    assert stage.context.settings.price == price
    assert stage.context.prices.least == price.nats
    assert stage.context.check is not None and len(stage.context.check.batches) == 3
    stage.abandon()


def test_what_an_earlier_look_found_is_taken_without_another() -> None:
    found, batches = measured_pruner()
    assert found.measure(batches, DenseMeasures(0.3, 0.5)) == DenseMeasures(0.3, 0.5)
    assert found.settings.price is not None and found.settings.price.nats_per_example == 0.435
    stage = found.stage(0)
    assert stage.context.limit == pytest.approx(0.3 + 0.05)
    stage.abandon()


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({"macs_ratio": 2.0}, math.inf),
        ({"macs_ratio": 2.0, "max_rise": 0.3}, math.inf),
        ({"max_rise": 0.3}, 0.3),
    ],
)
def test_under_a_ratio_a_cut_has_no_limit_because_targets_are_met(settings: dict[str, float], allowed: float) -> None:
    found, batches = measured_pruner(**settings)
    measures = found.measure(batches)
    stage = found.stage(0)
    assert (stage.context.allowed, stage.context.limit) == (allowed, measures.loss + allowed)
    stage.abandon()


def test_a_price_that_was_given_is_not_changed_by_measuring() -> None:
    found, batches = measured_pruner(price=Price(nats=7))
    found.measure(batches)
    assert found.settings.price == Price(nats=7)


def test_measuring_needs_a_loss_and_batches_of_numbers() -> None:
    images, labels = stripes(16)
    unnamed = Pruner(tiny_cnn(), images[:1], dataset_size=16)
    with pytest.raises(ConfigError, match="needs the loss: give loss_fn to the Pruner"):
        unnamed.measure([(images, labels)])
    found, batches = measured_pruner()
    with pytest.raises(ConfigError, match="needs at least one batch"):
        found.measure([])
    with pytest.raises(NumericalError, match="training batch 1 contains NaN or infinity in its input; clean the data"):
        found.measure([batches[0], (batches[1][0] * math.nan, batches[1][1])])
    assert found.settings.price is None, "nothing was taken over"
