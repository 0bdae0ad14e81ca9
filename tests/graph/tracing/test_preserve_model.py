"""Looking at a model changes nothing: attributes, buffers, flags and random states stay, also after errors."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rbprune import trace
from rbprune.errors import ModelError, UnprunableError
from rbprune.graph.tracing.preserve_model import preserve_model, seed_all
from tests.graph.hostile import same, snapshot
from tests.graph.operations import conv
from tests.networks import tiny_cnn


def test_looking_changes_nothing() -> None:
    model = tiny_cnn().train()
    model[1].eval()
    before, modes = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()]
    state = torch.get_rng_state()
    trace(nn.Sequential(model, nn.Dropout()), torch.zeros(2, 1, 8, 8))
    assert torch.equal(state, torch.get_rng_state())
    assert [m.training for m in model.modules()] == modes
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


@pytest.mark.parametrize("training", [False, True])
def test_scripted_submodules_keep_their_mode_and_their_statistics(training: bool) -> None:
    scripted = torch.jit.script(nn.Sequential(conv(6, 6), nn.BatchNorm2d(6), nn.Dropout(0.5)))
    model = nn.Sequential(conv(3, 6), scripted, conv(6, 2)).train(training)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trace(model, torch.ones(2, 3, 6, 6))
    assert all(module.training is training for module in model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    model.eval()(torch.ones(2, 3, 6, 6))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


Make = Callable[[], nn.Module]


class Diary(nn.Module):
    """Writes into itself whenever it runs."""

    def __init__(self, stop: str = "") -> None:
        super().__init__()
        self.a, self.b, self.drop = conv(3, 6), conv(6, 2), nn.Dropout()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(6))
        self.last, self.seen, self.cache, self.count = None, [], {}, 0
        self.stop = stop

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.count += 1
        y = self.drop(self.a(x))
        self.last = y
        self.seen.append(y)
        self.cache["y"] = y
        self.extra = torch.rand(3) + random.random() + np.random.rand()
        if self.stop == "raise":
            raise KeyError("the user's own")
        if self.stop == "value" and y.sum() > 0:
            return y
        return self.b(y)


class Inside(nn.Module):
    """The same as a part of a network, where it is run, not followed."""

    def __init__(self, stop: str = "") -> None:
        super().__init__()
        self.first, self.diary = conv(3, 3), Diary(stop)

    def forward(self, x: Tensor) -> Tensor:
        return self.diary(self.first(x))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (Diary, None),
        (Inside, None),
        (lambda: Diary("raise"), ModelError),
        (lambda: Diary("value"), UnprunableError),
        (lambda: Inside("raise"), ModelError),
        (lambda: Inside("value"), None),
    ],
    ids=["followed", "inside", "raises", "looks at values", "raises inside", "looks at values inside"],
)
def test_a_model_that_writes_into_itself_is_as_it_was(make: Make, error: type[Exception] | None) -> None:
    model = make().train()
    model.get_submodule("diary" if isinstance(model, Inside) else "").a.eval()
    before = snapshot(model)
    if error is None:
        trace(model, torch.zeros(2, 3, 5, 5))
    else:
        with pytest.raises(error):
            trace(model, torch.zeros(2, 3, 5, 5))
    assert same(before, snapshot(model))


def test_only_the_buffers_that_changed_are_written_and_all_are_what_they_were() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(4), nn.BatchNorm1d(2).double())
    model[1].register_buffer("grid", torch.arange(6.0).view(2, 3).t())
    model[1].running_mean.fill_(float("nan"))
    before = {name: (buffer, buffer.clone()) for name, buffer in model.named_buffers()}
    with preserve_model(model, training=True):
        model[0](torch.randn(5, 3))  # writes statistics without a new version
        model[1].grid.mul_(2)
        model[2].num_batches_tracked.add_(3)
    for name, buffer in model.named_buffers():
        held, value = before[name]
        assert buffer is held
        assert torch.equal(buffer.nan_to_num(), value.nan_to_num()), name


def test_seeds_are_not_left_for_a_device_that_wakes_up_later() -> None:
    queued = len(torch.cuda._queued_calls)
    with preserve_model(nn.Linear(2, 2), training=False):
        seed_all()
    assert len(torch.cuda._queued_calls) == queued
