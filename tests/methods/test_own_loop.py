"""The loop of docs/your-own.md is the whole contract for every method: forward, loss + kl, backward, step, finish."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Price, Pruner
from rbprune.errors import ConfigError, LoopError
from rbprune.methods import METHODS, Stage, loop_watch
from tests.methods.test_contract import OPTIONS, network
from tests.networks import stripes, tiny_cnn

RATES = {"rbp", "rrbp", "ibp"}
SILENT = {"l1", "uniform", "random", "taylor", "thinet", "cp", "dds", "dds-blocks"} | {m for m in METHODS if "tp-" in m}
"""Methods that add nothing to the loss, so that a loop without kl() leaves nothing out."""

Loss = Callable[[nn.Module, Tensor, Tensor, Stage], Tensor]


@pytest.fixture(scope="module", autouse=True)
def _no_stages_of_other_tests() -> None:
    """Stages that other tests left unfinished, and that wait for the garbage collector, shall not be taken for ours."""
    gc.collect()


def whole_loss(model: nn.Module, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
    return F.cross_entropy(model(x), y) + stage.kl()


def forgetful_loss(model: nn.Module, x: Tensor, y: Tensor, stage: Stage) -> Tensor:
    return F.cross_entropy(model(x), y)


def make_pruner(method: str, model: nn.Module, images: Tensor) -> Pruner:
    options: dict[str, Any] = {k: v for k, v in OPTIONS.get(method, {}).items() if k != "rate_lr"}
    options |= {"macs_ratio": 2.0} if METHODS[method].stage.needs_ratio else {}
    if method in ("slimming", "tp-bn"):
        options |= {"only": ["0", "4"], "macs_ratio": 1.5}
    return Pruner(model, images[:2], dataset_size=256, method=method, price=Price(nats=60), **options)


def run_loop(pruner: Pruner, images: Tensor, labels: Tensor, loss_of: Loss, *, epochs: int = 8) -> None:
    """The loop of docs/your-own.md."""
    rate_lr = OPTIONS.get(pruner.method.name, {}).get("rate_lr", 0.1)
    for stage in pruner:
        optimizer = torch.optim.Adam(stage.param_groups(lr=3e-3, rate_lr=rate_lr))
        for _ in range(epochs):
            for rows in torch.arange(256).split(32):
                loss = loss_of(pruner.model, images[rows], labels[rows], stage)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        stage.finish()


def no_hooks_left(model: nn.Module) -> bool:
    mine = [m for m in model.modules() if m._forward_pre_hooks or m._forward_hooks]
    return not (mine or [watch for watch in loop_watch._watches if watch._model is model])


@pytest.mark.filterwarnings("ignore:every channel of")
@pytest.mark.parametrize("method", METHODS)
def test_every_method_prunes_in_the_loop_of_the_readme(method: str) -> None:
    model, (images, labels) = network(method), stripes(256)
    pruner = make_pruner(method, model, images)
    before = pruner.graph.macs()
    run_loop(pruner, images, labels, whole_loss)
    assert pruner.graph.macs() < before / 1.05
    assert model(images).shape == (256, 3)
    assert no_hooks_left(model)


@pytest.mark.filterwarnings("ignore:every channel of")
@pytest.mark.parametrize("method", METHODS)
def test_a_loop_that_forgets_the_divergence_is_told_so(method: str) -> None:
    model, (images, labels) = network(method), stripes(256)
    pruner = make_pruner(method, model, images)
    before = pruner.graph.macs()
    if method in SILENT:
        run_loop(pruner, images, labels, forgetful_loss)
        assert pruner.graph.macs() < before / 1.05
        return
    with pytest.raises(LoopError, match=r"after 8 training passes nothing is known .* add stage\.kl\(\) to the loss"):
        run_loop(pruner, images, labels, forgetful_loss, epochs=1)
    assert pruner.graph.macs() == before
    assert no_hooks_left(model)


@pytest.mark.parametrize("method", ["rbp", "sbp", "bc"])
def test_what_the_method_trains_must_be_given_to_an_optimizer(method: str) -> None:
    model, (images, labels) = tiny_cnn(8), stripes(256)
    pruner = Pruner(model, images[:2], dataset_size=256, method=method, price=Price(nats=60), rates="adam")
    stage, optimizer = pruner.stage(0), torch.optim.Adam(model.parameters())
    whole_loss(model, images, labels, stage).backward()
    optimizer.step()
    with pytest.raises(LoopError, match=r"give the optimizer what the method trains too: Adam\(stage\.param_groups"):
        stage.finish()


def test_without_an_optimizer_of_torch_the_rates_never_move_and_that_is_told() -> None:
    model, (images, labels) = tiny_cnn(8), stripes(256)
    stage = Pruner(model, images[:2], dataset_size=256, price=Price(nats=60)).stage(0)
    whole_loss(model, images, labels, stage).backward()
    with pytest.raises(LoopError, match=r"step an optimizer of torch\.optim that holds the network's parameters"):
        stage.finish()


def test_a_stage_that_nobody_trained_is_told() -> None:
    pruner = Pruner(tiny_cnn(8), torch.zeros(2, 1, 8, 8), dataset_size=256, only=["0"])
    with pytest.warns(UserWarning, match="no training step was made in the stage of 0"):
        for _ in pruner:
            pass


def regression() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(256, 6)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)), x, x[:, :3] * 2 + 1


def one_step(pruner: Pruner, x: Tensor, y: Tensor) -> Stage:
    stage = pruner.stage(0)
    optimizer = torch.optim.Adam(stage.param_groups(lr=1e-3, rate_lr=0.1))
    (F.mse_loss(pruner.model(x), y) + stage.kl()).backward()
    optimizer.step()
    return stage


def test_a_loss_whose_curvature_is_not_known_is_noticed_and_adam_takes_over() -> None:
    model, x, y = regression()
    pruner = Pruner(model, x[:2], dataset_size=256, price=Price(nats=20))
    with pytest.warns(UserWarning, match="the rates are found by Adam"):
        stage = one_step(pruner, x, y)
    rate = stage.rates["0"]
    assert bool((rate != 0.01).all()), "Adam has already made its first step"
    stage.abandon()


def test_asked_for_by_name_the_fixed_point_refuses_a_loss_that_it_does_not_know() -> None:
    model, x, y = regression()
    pruner = Pruner(model, x[:2], dataset_size=256, price=Price(nats=20), rates="fixed-point")
    with pytest.raises(ConfigError, match="the loss is no cross-entropy of the model's outputs"):
        one_step(pruner, x, y)
    assert no_hooks_left(model)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(label_smoothing=0.1),
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 0.5])),
        lambda z, y: F.nll_loss(z.log_softmax(1), y),
        lambda z, y: F.kl_div(z.log_softmax(1), F.one_hot(y, 3).float(), reduction="batchmean"),
    ],
)
def test_every_loss_of_softmax_probabilities_is_recognised(loss: Any) -> None:
    model, (images, labels) = tiny_cnn(8), stripes(256)
    stage = Pruner(model, images[:2], dataset_size=256, price=Price(nats=60)).stage(0)
    optimizer = torch.optim.SGD(stage.param_groups(lr=1e-2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (loss(model(images), labels) + stage.kl()).backward()
        optimizer.step()
    assert stage.fixed_point  # type: ignore[attr-defined]
    stage.abandon()


def test_rates_move_once_in_a_step_however_many_optimizers_there_are() -> None:
    moved = []
    for split in (False, True):
        torch.manual_seed(0)
        model, (images, labels) = tiny_cnn(8), stripes(64)
        stage = Pruner(model, images[:2], dataset_size=64, price=Price(nats=60), only=["4"]).stage(0)
        groups = stage.param_groups(lr=1e-3, rate_lr=0.2)
        optimizers = [torch.optim.SGD([group]) for group in groups] if split else [torch.optim.SGD(groups)]
        for _ in range(4):
            for optimizer in optimizers:
                optimizer.zero_grad()
            whole_loss(model, images, labels, stage).backward()
            for optimizer in optimizers:
                optimizer.step()
        moved.append(stage.rates["4"].clone())
        stage.abandon()
    assert torch.equal(*moved)
    assert bool((moved[0] != 0.01).any())


def test_an_optimizer_of_another_network_is_not_ours() -> None:
    model, (images, labels) = tiny_cnn(8), stripes(64)
    stage = Pruner(model, images[:2], dataset_size=64, only=["4"]).stage(0)
    whole_loss(model, images, labels, stage).backward()
    other = nn.Linear(2, 2)
    other(torch.ones(1, 2)).sum().backward()
    torch.optim.SGD(other.parameters(), lr=0.1).step()
    assert stage.loop.steps == 0
    assert bool((stage.rates["4"] == 0.01).all())  # type: ignore[attr-defined]
    stage.abandon()


def test_a_stage_that_is_forgotten_leaves_nothing_in_the_process() -> None:
    model, (images, labels) = tiny_cnn(8), stripes(64)
    stage = Pruner(model, images[:2], dataset_size=64, only=["4"]).stage(0)
    whole_loss(model, images, labels, stage)
    found, watch = weakref.ref(stage), weakref.ref(stage.loop)
    assert watch() in loop_watch._watches
    del stage, model
    gc.collect()
    assert found() is None
    assert watch() is None
