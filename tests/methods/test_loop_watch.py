"""What is noticed of a training loop: passes, steps, inputs; and nothing of other loops."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from rbprune.methods import loop_watch
from rbprune.methods.loop_watch import LoopWatch
from rbprune.utils.inputs import Arguments


class Recorder:
    """Writes down when it is called."""

    def __init__(self) -> None:
        self.module: nn.Module | None = nn.Linear(1, 1)
        self.calls: list[str] = []

    def before_step(self) -> None:
        self.calls.append("before")

    def after_step(self) -> None:
        self.calls.append("after")

    def clamp(self) -> None:
        self.calls.append("clamp")


class Watched:
    """A network, what is trained beside it, and the watch."""

    def __init__(self, *, remember: bool = True) -> None:
        self.model, self.recorder = nn.Linear(2, 2), Recorder()
        self.watch = LoopWatch(self.model, self.recorder, remember=remember)
        assert self.recorder.module is not None
        self.own = self.recorder.module

    def backward(self) -> None:
        (self.model(torch.ones(1, 2)).sum() + self.own(torch.ones(1, 1)).sum()).backward()

    def counts(self) -> tuple[int, int, int]:
        return self.watch.forwards, self.watch.steps, self.watch.own_steps


@pytest.fixture
def watched() -> Watched:
    return Watched()


def sgd(*modules: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.1)


def test_one_optimizer_of_both(watched: Watched) -> None:
    optimizer = sgd(watched.model, watched.own)
    for _ in range(2):
        watched.backward()
        optimizer.step()
    assert watched.counts() == (2, 2, 2)
    assert watched.recorder.calls == ["before", "after", "clamp"] * 2


def test_an_optimizer_for_each_is_still_one_step(watched: Watched) -> None:
    weights, own = sgd(watched.model), sgd(watched.own)
    watched.backward()
    own.step()
    weights.step()
    own.step()
    assert watched.counts() == (1, 1, 2)
    assert watched.recorder.calls == ["clamp", "before", "after", "clamp", "clamp"]


def test_a_second_step_without_a_forward_pass_is_none(watched: Watched) -> None:
    optimizer = sgd(watched.model)
    watched.backward()
    optimizer.step()
    optimizer.step()
    assert watched.counts() == (1, 1, 0)
    assert watched.recorder.calls == ["before", "after", "clamp", "clamp"]


def test_gradients_of_two_passes_are_one_step(watched: Watched) -> None:
    optimizer = sgd(watched.model)
    watched.backward()
    watched.backward()
    optimizer.step()
    assert watched.counts() == (2, 1, 0)
    assert len(watched.watch.recent) == 2


def test_evaluation_and_passes_without_gradients_are_no_training(watched: Watched) -> None:
    watched.model.eval()(torch.ones(1, 2))
    with torch.no_grad():
        watched.model.train()(torch.ones(1, 2))
    assert watched.counts() == (0, 0, 0)
    assert not watched.watch.recent


def test_the_optimizer_of_another_network_is_not_asked(watched: Watched) -> None:
    other = nn.Linear(2, 2)
    watched.backward()
    other(torch.ones(1, 2)).sum().backward()
    sgd(other).step()
    assert watched.counts() == (1, 0, 0)
    assert watched.recorder.calls == []


def test_after_detach_nothing_is_noticed(watched: Watched) -> None:
    watched.watch.detach()
    watched.watch.detach()
    watched.backward()
    sgd(watched.model).step()
    assert watched.counts() == (0, 0, 0)
    assert watched.watch not in loop_watch._watches


def test_inputs_are_remembered_with_their_names(watched: Watched) -> None:
    x = torch.ones(1, 2)
    watched.model(input=x)
    (found,) = watched.watch.recent
    assert isinstance(found, Arguments)
    assert found.args == () and found.kwargs["input"] is x


def test_nothing_is_remembered_where_nobody_asks() -> None:
    watched = Watched(remember=False)
    watched.backward()
    assert watched.counts() == (1, 0, 0)
    assert not watched.watch.recent


def test_the_last_inputs_are_remembered_up_to_a_number_and_a_size(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remembered() -> list[Tensor]:
        return [arguments.args[0] for arguments in watched.watch.recent]

    for number in range(20):
        watched.model(torch.full((1, 2), float(number)))
    assert [int(x[0, 0]) for x in remembered()] == list(range(4, 20))
    monkeypatch.setattr(loop_watch, "_RECENT_BYTES", 3 * 2 * 4 + 1)
    for number in (20, 21):
        watched.model(torch.full((1, 2), float(number)))
        assert [int(x[0, 0]) for x in remembered()] == [number - 2, number - 1, number], "three of 8 bytes fit into 25"
    watched.model(torch.zeros(100, 2))
    assert [x.shape[0] for x in remembered()] == [100], "a batch too large for all is still remembered, alone"


def test_a_copy_of_an_optimizer_is_known_by_what_it_holds(watched: Watched) -> None:
    """Whether an optimizer is ours is decided once for each, by its parameters and not by its address."""
    optimizer = sgd(watched.model)
    stranger = copy.deepcopy(optimizer)
    watched.backward()
    stranger.step()
    assert watched.watch.steps == 0
    optimizer.step()
    assert watched.watch.steps == 1


@pytest.mark.parametrize("by_name", [True, False])
def test_a_step_with_a_closure_is_told_of_between_its_backward_pass_and_the_step(
    watched: Watched, by_name: bool
) -> None:
    """As PyTorch Lightning steps: the gradients of the closure must be there before, and not be used yet."""
    optimizer, seen = sgd(watched.model, watched.own), []
    weight = watched.model.weight
    before = weight.detach().clone()
    watched.recorder.before_step = lambda: seen.append(  # type: ignore[method-assign]
        (weight.grad is not None, torch.equal(weight, before))
    )

    def closure() -> float:
        optimizer.zero_grad()
        watched.backward()
        return 3.5

    returned = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
    assert returned == 3.5
    assert seen == [(True, True)]
    assert not torch.equal(weight, before)
    assert watched.recorder.calls == ["after", "clamp"]
    assert watched.counts() == (1, 1, 1)
