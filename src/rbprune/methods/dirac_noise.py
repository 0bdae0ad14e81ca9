"""Gaussian channel noise with a rate for each channel, and all that is seen of the loss through it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import NormalDist

import torch
from torch import Tensor, nn

from rbprune.bayes import dirac
from rbprune.methods import curvature
from rbprune.methods.channel_factor import ChannelFactor
from rbprune.methods.curvature import RunningCurvature, update_weight
from rbprune.utils import processes

FIRST = 3
"""After so many updates the curvature is still that of a network without much noise."""
OPEN = -1.0
"""The goal of a channel about which nothing is decided."""


class DiracNoise(ChannelFactor):
    """theta ~ N(1 - r, r (1 - r)) with one rate r per channel."""

    draws_once = True

    def __init__(self, channels: int, rate: float) -> None:
        super().__init__()
        self.rate = nn.Parameter(torch.full((channels,), rate))
        self.curvature = RunningCurvature(channels, cross=True)
        self.first: Tensor
        """The curvature when the noise began."""
        self.register_buffer("first", torch.zeros(channels))
        self.slope: Tensor
        """A running mean of the slope of the mean loss in theta; 0 before anything was seen."""
        self.register_buffer("slope", torch.zeros(channels))
        self.centre: Tensor
        """Where that slope was seen: the same running mean of the mean of theta."""
        self.register_buffer("centre", torch.zeros(channels))
        self.goal: Tensor
        """Where the rate goes once it is decided: 0 for a channel that stays, 1 for one that goes."""
        self.register_buffer("goal", torch.full((channels,), OPEN))
        self.doubt: Tensor
        """Which channels were undecided at that moment."""
        self.register_buffer("doubt", torch.zeros(channels, dtype=torch.bool))
        self.weighed: Tensor
        """Evidence, its standard error and the price of each channel at that moment, in nats."""
        self.register_buffer("weighed", torch.zeros(3, channels))
        self.pace: Tensor
        """The part of its way to the goal that a rate goes in each step."""
        self.register_buffer("pace", torch.zeros(()))
        self.passes = 0
        """Training steps so far in which the curvature might have been updated."""
        self.interval = curvature.EVERY
        """After how many of them it is."""
        self.slopes = 0
        """Training steps so far that told the slope."""
        self.is_decided = False
        self.loss_per_nat = 1.0
        """What one nat for each example is in units of the loss."""
        self.drawn: Tensor | None = None
        self._seen: Tensor | None = None

    def draw(self, rows: int) -> Tensor:
        theta = dirac.sample(self.rate, torch.randn(rows, len(self.rate), device=self.rate.device))
        if theta.requires_grad:
            self.drawn = theta
        return theta

    def mean(self) -> Tensor:
        return 1 - self.rate

    def update_is_due(self) -> bool:
        """Whether the curvature will be updated in the step that is about to begin."""
        return self.passes % self.interval == 0

    def note_curvature(self) -> None:
        """Remember how the curvature was in the beginning; to be called after every update of it."""
        if self.curvature.updates <= FIRST:
            self.first.copy_(self.curvature.value())

    def watch_slope(self) -> None:
        """See the slope of the loss in the theta that was drawn last, in the backward pass that is about to come."""
        if self.drawn is not None:
            self.drawn.register_hook(self._see)
            self.drawn = None

    def _see(self, gradient: Tensor) -> None:
        self._seen = gradient.detach().float().sum(0)

    def take_slope(self) -> None:
        """Take what the backward pass showed into the running mean; all processes must call it."""
        if self._seen is not None:
            self.slopes += 1
            self.slope.lerp_(processes.mean(self._seen), update_weight(self.slopes))
            self.centre.lerp_(self.mean().detach(), update_weight(self.slopes))
            self._seen = None

    def near(self, curvature: Tensor, confidence: float) -> Tensor:
        """Which channels have an estimated curvature that cannot be told from the one that is given."""
        width = NormalDist().inv_cdf((1 + confidence) / 2)
        return (self.curvature.value() - curvature).abs() <= width * self.curvature.standard_error()

    def compensated_mean(self, gone: Tensor) -> Tensor:
        """The mean of theta with 0 where a channel goes, and the others moved so that the curvature is paid least."""
        now = self.mean().detach()
        return now + self.curvature.compensated(-now * gone, ~gone)

    def change(self, gone: Tensor, *, compensated: bool = False) -> Tensor:
        """What a cut does to the mean m of theta: it goes to 0 where a channel goes; with ``compensated`` the others
        move to ``compensated_mean``."""
        now = self.mean().detach()
        return (self.compensated_mean(gone) if compensated else now * ~gone) - now

    @contextmanager
    def moved(self, change: Tensor) -> Iterator[None]:
        """Inside, the mean of theta is another one."""
        rate = self.rate.detach().clone()
        try:
            with torch.no_grad():
                self.rate.sub_(change)
            yield
        finally:
            with torch.no_grad():
                self.rate.copy_(rate)

    def forecast(self, change: Tensor, dataset_size: int) -> float:
        """By how many nats per example the loss will rise by a change of the mean of theta, as far as training has
        shown it.

        With the running mean g of the slopes, at the running mean c of the means of theta, and the curvature H, the
        loss at theta is a constant and g^T (theta - c) + (theta - c)^T H (theta - c) / 2; the rise is its difference
        between the two thetas.
        """
        off = self.mean().detach() - self.centre
        second = self.curvature.cost(off + change) - self.curvature.cost(off)
        return float(self.slope @ change) / self.loss_per_nat + second / dataset_size

    def decide(self, gone: Tensor, doubt: Tensor, pace: float, weighed: Tensor) -> None:
        """From now on rates go to 1 for what goes and to 0 for what stays. ``weighed`` is what the decision rests on,
        to be told afterwards."""
        self.goal.copy_(gone)
        self.doubt.copy_(doubt)
        self.weighed.copy_(weighed)
        self.pace.fill_(pace)
        self.is_decided = True

    def get_extra_state(self) -> Tensor:
        """Numbers that are kept out of the device's memory: a step must not wait for them."""
        return torch.tensor([self.passes, self.slopes, self.is_decided, self.loss_per_nat], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take up what ``get_extra_state`` gave."""
        self.passes, self.slopes = int(state[0]), int(state[1])
        self.is_decided, self.loss_per_nat = bool(state[2]), float(state[3])
