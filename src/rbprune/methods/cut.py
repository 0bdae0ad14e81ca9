"""A cut as a transaction: it is tried, measured, and taken back to what can be afforded.

Before it, a second-order forecast of the rise of the loss; after it (factors folded, channels masked, batch
normalisation recalibrated) the rise that is measured, on batches that are the same throughout a run. Only then do the
channels go: a masked network is the removed one, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rbprune.graph import ChannelGraph
from rbprune.methods.compensation import Compensation
from rbprune.methods.loss_check import LossCheck
from rbprune.methods.recalibrate import recalibrate
from rbprune.methods.rounding import spare_to_step

FAR = 3.0
"""A cut that costs more than so many times its forecast is not understood."""
SURPRISE = 0.25
"""What the forecast has missed counts from this part of the allowed rise on."""


@dataclass(frozen=True)
class CutReport:
    """What a cut did to the loss, in nats per example; None is what nobody could know."""

    forecast: float | None = None
    """The rise that the curvature foretold, before any correction."""
    measured: float | None = None
    """The rise from the network with its factors folded to the same without the channels that went."""
    error: float | None = None
    """The standard error of ``measured``."""
    loss: float | None = None
    """The loss after the cut and the recalibration."""
    asked: int = 0
    """How many channels were to go."""
    gone: int = 0
    """How many went."""
    restored: bool = False
    """Whether the weights are those of before the stage again."""
    passes: int = 0
    """How many forward passes over the batches it took to forecast and to measure it."""


class Forecast(NamedTuple):
    """What is known of a cut before it."""

    rise: float | None = None
    """By how many nats per example the loss will rise; None where it cannot be said."""
    before: Tensor | None = None
    """The losses of the batches with the factors at their means and nothing cut, where they were seen on the way."""
    passes: int = 0
    """How many forward passes over the batches that took."""


UNKNOWN = Forecast()


@dataclass
class Proposal:
    """Channels that are to go from some sites, with what happens to those that stay."""

    gone: dict[str, Tensor]
    factors: dict[str, Tensor]
    """What is folded into the consumers of each site."""
    ranks: dict[str, Tensor]
    """The order in which channels go, highest first, where not all of them can."""
    forecast: Forecast = UNKNOWN
    prepare: Callable[[dict[str, Tensor]], None] | None = None
    """Changes the weights of what stays, knowing what goes."""
    compensation: Compensation | None = None
    """Gives what the removed channels carried to those that stay, where the user asked for it."""
    step: int = 1
    """Every site keeps a multiple of so many channels, or all of them."""
    worth: dict[str, Tensor] = field(default_factory=dict)
    """For whole branches: the most that removing them may cost, in nats per example."""

    def channels(self) -> dict[str, list[int]]:
        """The numbers of the channels that go, as the graph wants them."""
        return {name: mask.nonzero().flatten().tolist() for name, mask in self.gone.items()}

    def size(self) -> int:
        """How many channels go."""
        return sum(int(mask.sum()) for mask in self.gone.values())

    def is_too_dear(self, rise: float) -> bool:
        """Whether it costs more than what goes is worth, where that is known."""
        limits = [float(self.worth[name].cpu()[self.gone[name].cpu()].sum()) for name in self.worth]
        return bool(limits) and self.size() > 0 and rise > sum(limits)

    def fold(self, graph: ChannelGraph) -> None:
        """Multiply the factors into the weights and, where channels go, make up for them."""
        for name, factor in self.factors.items():
            graph.scale(graph[name], factor)
        if self.compensation is not None and self.size():
            self.compensation(self.gone)

    def first(self, number: int) -> Proposal:
        """The same with only so many channels, those of the highest rank; fewer where widths have a ``step``."""
        if not self.gone:
            return self
        flat = torch.cat([self.gone[name].cpu() for name in self.gone])
        ranks = torch.cat([self.ranks[name].detach().double().cpu() for name in self.gone])
        order = ranks.masked_fill(~flat, -torch.inf).argsort(descending=True, stable=True)
        chosen = torch.zeros_like(flat)
        chosen[order[:number]] = True
        parts = chosen.split([len(mask) for mask in self.gone.values()])
        gone = dict(zip(self.gone, parts, strict=True))
        return replace(self, gone=spare_to_step(self.ranks, gone, self.step), forecast=UNKNOWN)


@dataclass(frozen=True)
class StageStart:
    """The network before a stage, and how its channels ranked then."""

    state: Mapping[str, Tensor]
    ranks: dict[str, Tensor]


class Transaction:
    """Tries cuts of a network, and makes the one that can be afforded."""

    def __init__(self, graph: ChannelGraph, check: LossCheck, *, limit: float, allowed: float) -> None:
        self.graph, self.model, self.check = graph, graph.model, check
        self.limit, self.allowed = limit, allowed
        self.passes = 0
        """Forward passes over the batches of the check so far."""

    def make(
        self,
        wanted: Proposal,
        batches: Iterable[Any],
        before_stage: StageStart | None = None,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> CutReport:
        """Fold, recalibrate, and remove as many of the wanted channels as can be afforded."""
        made, report = self.afford(wanted, batches, before_stage)
        self.graph.remove(made.channels(), optimizer=optimizer)
        return replace(report, passes=self.passes + wanted.forecast.passes)

    def afford(
        self, wanted: Proposal, batches: Iterable[Any], before_stage: StageStart | None
    ) -> tuple[Proposal, CutReport]:
        """Fold and recalibrate, with as many of the wanted channels masked as can be afforded; they still have to be
        removed. Where the network has suffered in the stage itself, its state of before the stage is cut instead."""
        saved = network_state(self.model)
        known = wanted.forecast.before
        before, after = self.try_out(wanted.first(0)) if known is None else known, self.try_out(wanted)
        loss = self._commit(wanted, batches)
        rise = float((after - before).mean())
        if loss <= self.limit and not self._surprising(wanted.forecast.rise, rise) and not wanted.is_too_dear(rise):
            return wanted, _report(wanted, wanted, before, after, loss)
        load_network_state(self.model, saved)
        base = wanted
        if before_stage is not None and float(before.mean()) > self.limit:
            load_network_state(self.model, before_stage.state)
            start = self.try_out(Proposal({}, {}, {}))
            if float(start.mean()) < float(before.mean()):
                renewed = None if wanted.compensation is None else wanted.compensation.for_other_weights()
                base = replace(
                    wanted, factors={}, ranks=before_stage.ranks, forecast=UNKNOWN, prepare=None, compensation=renewed
                )
                before = start
            else:
                load_network_state(self.model, saved)
        made = self._affordable(base, float(before.mean()))
        after = self.try_out(made)
        return made, _report(wanted, made, before, after, self._commit(made, batches), restored=base is not wanted)

    def try_out(self, proposal: Proposal) -> Tensor:
        """The losses of the batches after such a cut, by their own statistics; the network is as it was afterwards."""
        saved = network_state(self.model)
        with self._cut(proposal):
            found = self.check.losses(self.model, batch_statistics=True)
        self.passes += 1
        load_network_state(self.model, saved)
        return found

    def _commit(self, proposal: Proposal, batches: Iterable[Any]) -> float:
        """Fold for good, and recalibrate as if the channels were gone; returns the loss that is left."""
        with self._cut(proposal):
            recalibrate(self.model, batches)
            self.passes += 1
            return float(self.check.losses(self.model).mean())

    @contextmanager
    def _cut(self, proposal: Proposal) -> Iterator[None]:
        proposal.fold(self.graph)
        if proposal.prepare is not None and proposal.size():
            proposal.prepare(proposal.gone)
        with self.graph.mask(proposal.channels()):
            yield

    def _surprising(self, forecast: float | None, rise: float) -> bool:
        """Whether a cut costs far more than its forecast, and so much that it matters."""
        if forecast is None or self.allowed == math.inf:
            return False
        return rise > max(FAR * forecast, SURPRISE * self.allowed)

    def _affordable(self, proposal: Proposal, before: float) -> Proposal:
        """The most of its channels, in their order, with which the loss stays within the limit, and a cut by itself
        within what would be a surprise, and within what its branches are worth."""
        limit = min(self.limit, before + SURPRISE * self.allowed)
        low, high = 0, proposal.size() - 1
        while low < high:
            middle = (low + high + 1) // 2
            smaller = proposal.first(middle)
            loss = float(self.try_out(smaller).mean())
            fits = loss <= limit and not smaller.is_too_dear(loss - before)
            low, high = (middle, high) if fits else (low, middle - 1)
        return proposal.first(low)


def cut_unmeasured(
    graph: ChannelGraph, proposal: Proposal, batches: Iterable[Any], optimizer: torch.optim.Optimizer | None
) -> CutReport:
    """Fold, remove and recalibrate, where there is nothing to measure the cut by."""
    proposal.fold(graph)
    if proposal.prepare is not None:
        proposal.prepare(proposal.gone)
    graph.remove(proposal.channels(), optimizer=optimizer)
    recalibrate(graph.model, batches)
    return CutReport(proposal.forecast.rise, asked=proposal.size(), gone=proposal.size())


def _report(
    wanted: Proposal, made: Proposal, before: Tensor, after: Tensor, loss: float, *, restored: bool = False
) -> CutReport:
    rises = after - before
    return CutReport(
        forecast=wanted.forecast.rise if made is wanted else None,
        measured=float(rises.mean()),
        error=float(rises.std() / len(rises) ** 0.5) if len(rises) > 1 else None,
        loss=loss,
        asked=wanted.size(),
        gone=made.size(),
        restored=restored,
    )


def network_state(model: nn.Module) -> dict[str, Tensor]:
    """A copy of weights and statistics."""
    return {name: tensor.detach().clone() for name, tensor in _tensors(model).items()}


def load_network_state(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Put a copy back in place: parameters stay the same objects."""
    with torch.no_grad():
        for name, tensor in _tensors(model).items():
            tensor.copy_(saved[name])


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
