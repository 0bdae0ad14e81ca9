"""Data-driven sparse structure selection: scales of channels or of residual blocks, made sparse by accelerated proximal
gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.errors import ConfigError
from rbprune.graph.cost import amount
from rbprune.methods.channel_factor import ChannelFactor
from rbprune.methods.gate_stage import GateStage
from rbprune.methods.numerics.proximal import SCALE_INIT, apg_step
from rbprune.methods.stage import Stage
from rbprune.methods.verdict import Verdict


class TrainedScale(ChannelFactor):
    """A plain factor lambda per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((channels,), SCALE_INIT))

    def draw(self, rows: int) -> Tensor:
        return self.scale.expand(rows, -1)

    def mean(self) -> Tensor:
        return self.scale


class AcceleratedProximal(torch.optim.Optimizer):
    """lambda by ``proximal.apg_step``; the L1 penalty ``gamma`` enters through the soft threshold alone."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float, gamma: float, momentum: float = 0.9) -> None:
        super().__init__(parameters, {"lr": lr, "gamma": gamma, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p]
                    velocity = state.get("velocity", torch.zeros_like(p))
                    new, state["velocity"] = apg_step(
                        p, p.grad, velocity, group["lr"], group["momentum"], group["gamma"]
                    )
                    p.copy_(new)


class _Sparse(Stage):
    """Scales that become exactly 0."""

    options = ("gamma",)
    _proximal: torch.optim.Optimizer | None = None

    def param_groups(self, lr: float, rate_lr: float | None = None, **options: Any) -> list[dict[str, Any]]:
        """Groups of the weights alone: no other optimizer makes scales sparse, so the stage steps its own."""
        self._proximal = self.optimizer(self.settings.step_size if rate_lr is None else rate_lr)
        return super().param_groups(lr, rate_lr, **options)[:1]

    def after_step(self) -> None:
        if self._proximal is not None:
            self._proximal.step()
            self._proximal.zero_grad(set_to_none=True)

    def trains_itself(self) -> bool:
        return False


class DDSStage(_Sparse, GateStage):
    """Channels whose scale is exactly 0 go, the others fold it. ``gamma`` (1e-3) is the weight of the L1 penalty."""

    diagnostic = "minus lambda"
    factors: TrainedScale

    def make_factors(self, channels: int) -> TrainedScale:
        return TrainedScale(channels)

    def optimizer(self, lr: float) -> torch.optim.Optimizer:
        return AcceleratedProximal(self.factors.parameters(), lr, self.settings.options.get("gamma", 1e-3))

    def judge(self) -> dict[str, Verdict]:
        scales = self.split(self.factors.scale.detach())
        return {name: Verdict(-scale, scale == 0, scale) for name, scale in scales.items()}


class DDSBlocksStage(DDSStage):
    """Scales of whole residual blocks: r + lambda F(r), for blocks whose shortcut is the identity.

    The branch of a block of scale 0 is removed; the other blocks fold their scale into the last layer of the branch.
    ``gamma`` (0.01) is the weight of the L1 penalty.
    """

    cuts_itself = True
    refits = True

    @property
    def blocks(self) -> list[str]:
        """The blocks, by name."""
        return self.names

    def optimizer(self, lr: float) -> torch.optim.Optimizer:
        return AcceleratedProximal(self.factors.parameters(), lr, self.settings.options.get("gamma", 0.01))

    def judge(self) -> dict[str, Verdict]:
        gone = self._dead({name: float(scale) for name, scale in self.split(self.factors.scale.detach()).items()})
        return {
            name: replace(verdict, redundant=torch.tensor([name in gone])) for name, verdict in super().judge().items()
        }

    def _dead(self, scales: dict[str, float]) -> set[str]:
        """Blocks of scale 0; or, where a target is given, as many of the smallest as that needs."""
        ranked = sorted(scales, key=scales.__getitem__)
        if self.context.target is None:
            return {name for name in ranked if scales[name] == 0}
        target = self.context.target
        for count in range(len(ranked) + 1):
            left = target.cost.without(self.graph, dict.fromkeys(ranked[:count], 1))
            if left <= target.limit:
                return set(ranked[:count])
        raise ConfigError(
            f"a network of {amount(target.cost, target.limit)} is out of reach: {target.cost.amount(left)} are left "
            "without any of the blocks whose shortcut is the identity; ask for less "
            f"(prune.{target.cost.name}_ratio) or try method='dds'"
        )
