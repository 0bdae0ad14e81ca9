"""Data-driven sparse structure selection: scales of channels or of residual blocks, made sparse by accelerated proximal
gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.errors import ConfigError, UnprunableError
from rbprune.graph import ChannelGraph
from rbprune.methods.channel_factor import Law
from rbprune.methods.numerics.proximal import SCALE_INIT, apg_step
from rbprune.methods.stage import GateStage, Settings, Stage, Verdict


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


class _Sparse(Stage):
    """Scales that become exactly 0."""

    options = ("gamma",)

    def param_groups(self, lr: float, rate_lr: float, **options: Any) -> list[dict[str, Any]]:
        """Of the weights alone: the scales need the optimizer that makes them sparse, ``stage.optimizer(rate_lr)``."""
        return super().param_groups(lr, rate_lr, **options)[:1]


class DDSStage(_Sparse, GateStage):
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


class DDSBlocksStage(_Sparse):
    """Scales of whole residual blocks: r + lambda F(r), for blocks whose shortcut is the identity.

    A block of scale 0 is cut to one channel per layer, and its last layer gives exactly 0, so that class and names of
    the network stay; the other blocks fold their scale. ``gamma`` (0.01) is the weight of the L1 penalty.
    """

    diagnostic = "minus lambda"
    cuts_itself = True

    def __init__(self, graph: ChannelGraph, names: list[str], settings: Settings, *, remember: bool = True) -> None:
        super().__init__(graph, names, settings, remember=remember)
        inside = {site.block for site in self.sites if site.residual == "inside" and site.block}
        self.blocks = [name for name, last in graph.blocks.items() if name in inside and self._affine(last)]
        if not self.blocks:
            raise UnprunableError("dds-blocks finds no residual block whose shortcut is the identity; try method='dds'")
        self.module = self.law = ScaleLaw(len(self.blocks)).to(next(graph.model.parameters()).device)
        self._handles = [
            graph.module(graph.blocks[name]).register_forward_hook(self._hook(number))
            for number, name in enumerate(self.blocks)
        ]

    def _affine(self, name: str) -> bool:
        return isinstance(getattr(self.graph.module(name), "weight", None), nn.Parameter)

    def _hook(self, number: int) -> Callable[..., Tensor]:
        def scale(module: nn.Module, args: Any, output: Tensor) -> Tensor:
            return output * self.law.scale[number].to(output.dtype)

        return scale

    def optimizer(self, lr: float) -> torch.optim.Optimizer:
        return AcceleratedProximal(self.law.parameters(), lr, self.settings.options.get("gamma", 0.01))

    def judge(self) -> dict[str, Verdict]:
        scales = dict(zip(self.blocks, self.law.scale.detach().cpu().tolist(), strict=True))
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
        if self.settings.macs is None:
            return {name for name in ranked if scales[name] == 0}
        for count in range(len(ranked) + 1):
            gone = set(ranked[:count])
            counts = {site.name: site.channels - 1 for site in self.sites if site.block in gone}
            left = self.graph.macs_without(counts)
            if left <= self.settings.macs:
                return gone
        raise ConfigError(
            f"a network of {self.settings.macs / 1e6:.3g} M MACs is out of reach: {left / 1e6:.3g} M are left without "
            "any of the blocks whose shortcut is the identity; ask for less (prune.macs_ratio) or try method='dds'"
        )

    def before_cut(self, gone: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for number, name in enumerate(self.blocks):
                last = self.graph.module(self.graph.blocks[name])
                factor = 0.0 if name in self._gone else float(self.law.scale[number])
                for parameter in last.parameters(recurse=False):
                    parameter.mul_(factor)

    def let_go(self) -> None:
        for handle in self._handles:
            handle.remove()
