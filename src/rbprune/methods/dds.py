"""Data-driven sparse structure selection: scales of channels or of residual blocks, made sparse by accelerated proximal
gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.errors import ConfigError, UnprunableError
from rbprune.graph import ChannelGraph
from rbprune.graph.cost import amount
from rbprune.methods.channel_factor import ChannelFactor
from rbprune.methods.gate_stage import GateStage
from rbprune.methods.numerics.proximal import SCALE_INIT, apg_step
from rbprune.methods.settings import StageContext
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


class DDSBlocksStage(_Sparse):
    """Scales of whole residual blocks: r + lambda F(r), for blocks whose shortcut is the identity.

    A block of scale 0 is cut to one channel per layer, and its last layer gives exactly 0, so that class and names of
    the network stay; the other blocks fold their scale. ``gamma`` (0.01) is the weight of the L1 penalty.
    """

    diagnostic = "minus lambda"
    cuts_itself = True
    refits = True

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        super().__init__(graph, names, context, remember=remember)
        inside = {site.block for site in self.sites if site.residual == "inside" and site.block}
        self.blocks = [name for name, last in graph.blocks.items() if name in inside and self._affine(last)]
        if not self.blocks:
            raise UnprunableError("dds-blocks finds no residual block whose shortcut is the identity; try method='dds'")
        self.module = self.factors = TrainedScale(len(self.blocks)).to(next(graph.model.parameters()).device)
        self._handles = [
            graph.module(graph.blocks[name]).register_forward_hook(self._hook(number))
            for number, name in enumerate(self.blocks)
        ]

    def _affine(self, name: str) -> bool:
        return isinstance(getattr(self.graph.module(name), "weight", None), nn.Parameter)

    def _hook(self, number: int) -> Callable[..., Tensor]:
        def scale(module: nn.Module, args: Any, output: Tensor) -> Tensor:
            return output * self.factors.scale[number].to(output.dtype)

        return scale

    def optimizer(self, lr: float) -> torch.optim.Optimizer:
        return AcceleratedProximal(self.factors.parameters(), lr, self.settings.options.get("gamma", 0.01))

    def judge(self) -> dict[str, Verdict]:
        scales = dict(zip(self.blocks, self.factors.scale.detach().cpu().tolist(), strict=True))
        self._gone = self._dead(scales)
        verdicts = {}
        for site in self.sites:
            lost = site.block in self._gone
            value = torch.full((site.channels,), -scales.get(site.block or "", 1.0), dtype=torch.float64)
            verdicts[site.name] = Verdict(value, torch.full((site.channels,), lost))
        return verdicts

    def _dead(self, scales: dict[str, float]) -> set[str]:
        """Blocks of scale 0; or, where the MACs are given, as many of the smallest as that needs."""
        ranked = sorted(scales, key=scales.__getitem__)
        if self.context.target is None:
            return {name for name in ranked if scales[name] == 0}
        target = self.context.target
        for count in range(len(ranked) + 1):
            gone = set(ranked[:count])
            counts = {site.name: site.channels - 1 for site in self.sites if site.block in gone}
            left = target.cost.without(self.graph, counts)
            if left <= target.limit:
                return gone
        raise ConfigError(
            f"a network of {amount(target.cost, target.limit)} is out of reach: {target.cost.amount(left)} are left "
            "without any of the blocks whose shortcut is the identity; ask for less "
            f"(prune.{target.cost.name}_ratio) or try method='dds'"
        )

    def before_cut(self, gone: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for number, name in enumerate(self.blocks):
                last = self.graph.module(self.graph.blocks[name])
                factor = 0.0 if name in self._gone else float(self.factors.scale[number])
                for parameter in last.parameters(recurse=False):
                    parameter.mul_(factor)

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
