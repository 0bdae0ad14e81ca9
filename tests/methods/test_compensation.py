"""What a removed channel carried is given to those that stay."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph, trace
from rbprune.methods import compensation
from rbprune.methods.compensation import FactorCompensation, WeightCompensation
from tests.networks import random_drop, relative_error, scramble, stripes, tiny_cnn


def masks(graph: ChannelGraph, drop: dict[str, list[int]]) -> dict[str, Tensor]:
    found = {name: torch.zeros(graph[name].channels, dtype=torch.bool) for name in drop}
    for name, channels in drop.items():
        found[name][channels] = True
    return found


class Joined(nn.Module):
    """Two layers that one layer reads, and another that reads only the first."""

    def __init__(self, *, bias: bool) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 10), nn.Linear(8, 6)
        self.both, self.one = nn.Linear(16, 5, bias=bias), nn.Linear(10, 4, bias=bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = F.relu(self.a(x)), F.relu(self.b(x))
        return self.both(torch.cat([a, b], 1)), self.one(a)


@pytest.mark.parametrize("bias", [True, False])
def test_every_reader_gives_the_least_squares_fit_of_what_it_gave(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compensation, "RIDGE", 1e-12)
    torch.manual_seed(0)
    model, x = Joined(bias=bias).double(), torch.randn(300, 8, dtype=torch.float64)
    graph = trace(model, x[:1])
    wanted = [output.detach() for output in model(x)]
    drop = {"a": [0, 4, 5], "b": [1]}
    WeightCompensation(graph, list(drop), [x[:100], x[100:]])(masks(graph, drop))
    with torch.no_grad(), graph.mask(drop):
        masked = model(x)
    graph.remove(drop)
    with torch.no_grad():
        removed, a, b = model(x), F.relu(model.a(x)), F.relu(model.b(x))
    for inputs, ours, cut, target in zip((torch.cat([a, b], 1), a), masked, removed, wanted, strict=True):
        assert relative_error(ours, cut) < 1e-9, "masked is removed"
        design = torch.cat([inputs, torch.ones(300, 1, dtype=torch.float64)], 1) if bias else inputs
        best = design @ torch.linalg.lstsq(design, target).solution
        assert relative_error(best, ours) < 1e-7


@pytest.mark.parametrize(
    "reader",
    [
        nn.Conv2d(6, 4, 3, stride=2, padding=1, bias=False),
        nn.Conv2d(6, 4, (1, 3), padding=(0, 2), dilation=(1, 2)),
        nn.Conv2d(6, 4, 3, padding="same", padding_mode="reflect"),
    ],
    ids=["stride", "dilation", "reflected"],
)
def test_a_twin_is_missed_by_nobody(reader: nn.Conv2d, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channel 1 is -2 times channel 4, so that channel 4 can stand for both."""
    monkeypatch.setattr(compensation, "RIDGE", 1e-12)
    torch.manual_seed(0)
    first = nn.Conv2d(3, 6, 3)
    with torch.no_grad():
        first.weight[1], first.bias[1] = -2 * first.weight[4], -2 * first.bias[4]  # type: ignore[index]
    model = nn.Sequential(first, copy.deepcopy(reader), nn.Flatten(), nn.LazyLinear(2)).double()
    x = torch.randn(64, 3, 9, 9, dtype=torch.float64)
    with torch.no_grad():
        before = model(x)
    graph = trace(model, x[:1])
    with torch.no_grad(), graph.mask({"0": [1]}):
        assert relative_error(before, model(x)) > 0.01
    WeightCompensation(graph, ["0"], [x])(masks(graph, {"0": [1]}))
    graph.remove({"0": [1]})
    with torch.no_grad():
        assert relative_error(before, model(x)) < 1e-6


def test_masked_is_removed_after_it_in_a_whole_network_and_looking_changes_nothing() -> None:
    torch.manual_seed(0)
    model, (images, _) = scramble(tiny_cnn()), stripes(128)
    images = images.double()
    graph = trace(model, images[:1])
    drop, before = random_drop(graph), {name: t.clone() for name, t in model.state_dict().items()}
    compensate = WeightCompensation(graph, list(drop), [images])
    compensate(masks(graph, {name: [] for name in drop}))
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items()), "nothing goes"
    compensate(masks(graph, drop))
    changed = {name for name, t in model.state_dict().items() if not torch.equal(before[name], t)}
    assert changed == {f"{number}.{kind}" for number in (4, 8, 10) for kind in ("weight", "bias")}, "readers alone"
    with torch.no_grad(), graph.mask(drop):
        masked = model(images)
    graph.remove(drop)
    with torch.no_grad():
        assert relative_error(masked, model(images)) < 1e-9
    assert not any(module._forward_hooks for module in model.modules())


def test_the_same_choice_is_fitted_in_the_same_way_and_other_weights_are_looked_at_again() -> None:
    torch.manual_seed(0)
    model, (images, _) = tiny_cnn().eval(), stripes(64)
    graph = trace(model, images[:1])
    gone, start = masks(graph, {"4": [0, 3]}), copy.deepcopy(model.state_dict())
    compensate, fitted = WeightCompensation(graph, ["4"], [images]), []
    for other in ({"4": [1]}, {"4": [5, 6]}):
        compensate(gone)
        fitted.append(model[8].weight.detach().clone())
        model.load_state_dict(start)
        compensate(masks(graph, other))
        model.load_state_dict(start)
    assert torch.equal(fitted[0], fitted[1])
    with torch.no_grad():
        model[5].weight.normal_()  # type: ignore[operator, union-attr]
    again = compensate.for_other_weights()
    again(gone)
    assert again.moments is not None and compensate.moments is not None
    assert not torch.equal(again.moments["8"].gram, compensate.moments["8"].gram)


def test_what_does_not_fit_into_memory_at_once_takes_several_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, (images, _) = tiny_cnn().eval(), stripes(32)
    graph, drop = trace(model, images[:1]), {"0": [1], "4": [0, 3], "8": [2]}
    grams, passes = [], []
    for most in (1 << 30, 1):
        monkeypatch.setattr(compensation, "MOST_BYTES", most)
        torch.manual_seed(0)
        shown = Shown([images])
        compensate = WeightCompensation(graph, list(drop), shown)
        grams.append(compensate._look()["10"].gram)
        passes.append(shown.passes)
    assert torch.equal(grams[0], grams[1]) and passes == [1, 3]


class Shown:
    """Batches that count how often they are gone through."""

    def __init__(self, batches: list[Tensor]) -> None:
        self.batches, self.passes = batches, 0

    def __iter__(self) -> Any:
        self.passes += 1
        return iter(self.batches)


def test_layers_of_another_kind_are_left_alone_and_named() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ConvTranspose2d(6, 4, 3), nn.Flatten(), nn.LazyLinear(2))
    x, told = torch.randn(16, 3, 7, 7), []
    model(x)
    before = model[1].weight.detach().clone()
    graph = trace(model, x[:1])
    compensate = WeightCompensation(graph, ["0"], [x], tell=told.append)
    compensate(masks(graph, {"0": [1]}))
    assert torch.equal(before, model[1].weight)  # type: ignore[arg-type]
    assert len(told) == 1
    assert told[0].startswith("prune.compensate='weights' leaves '1' as they are: only plain convolutions")


def test_tokens_are_samples_of_a_linear_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compensation, "RIDGE", 1e-12)
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3)).double(), torch.randn(40, 7, 5, dtype=torch.float64)
    with torch.no_grad():
        model[0].weight[2], model[0].bias[2] = model[0].weight[3], model[0].bias[3]
        before = model(x)
    graph = trace(model, x[:1])
    WeightCompensation(graph, ["0"], [x])(masks(graph, {"0": [2]}))
    graph.remove({"0": [2]})
    with torch.no_grad():
        assert relative_error(before, model(x)) < 1e-6


def test_without_any_batch_it_takes_others_or_says_what_to_give() -> None:
    torch.manual_seed(0)
    model, (images, _) = tiny_cnn().eval(), stripes(32)
    graph = trace(model, images[:1])
    gone = masks(graph, {"4": [0]})
    with pytest.raises(ConfigError, match=r"there is no batch to see that by; give inputs to stage.finish\(batches="):
        WeightCompensation(graph, ["4"], [])(gone)
    assert not any(module._forward_hooks for module in model.modules())
    compensate = WeightCompensation(graph, ["4"], [], [images])
    compensate(gone)
    assert compensate.moments is not None and compensate.moments["8"].count == 32


def test_factors_are_multiplied_on_what_stays() -> None:
    torch.manual_seed(0)
    model = tiny_cnn()
    graph, before = trace(model, torch.zeros(1, 1, 8, 8)), model[10].weight.detach().clone()
    factors = torch.linspace(0.5, 1.5, 12)
    compensate = FactorCompensation(graph, lambda gone: {"8": factors})
    compensate(masks(graph, {"8": [3]}))
    factors[3] = 1
    torch.testing.assert_close(model[10].weight.detach(), before * factors)
    assert compensate.for_other_weights() is None
