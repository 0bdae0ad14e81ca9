"""Data-driven sparse structure selection: a scale per channel, made sparse by accelerated proximal gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.methods.gates import Law
from rbprune.methods.proximal import SCALE_INIT, apg_step
from rbprune.methods.stage import GateStage, Verdict


class ScaleLaw(Law):
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


class DDSStage(GateStage):
    """Channels whose scale is exactly 0 go, the others fold it. ``gamma`` (1e-3) is the weight of the L1 penalty."""

    diagnostic = "minus lambda"
    law: ScaleLaw

    def make_law(self, channels: int) -> ScaleLaw:
        return ScaleLaw(channels)

    def optimizer(self, lr: float) -> torch.optim.Optimizer:
        return AcceleratedProximal(self.law.parameters(), lr, self.settings.options.get("gamma", 1e-3))

    def judge(self) -> dict[str, Verdict]:
        scales = self.split(self.law.scale.detach())
        return {name: Verdict(-scale, scale == 0, scale) for name, scale in scales.items()}
