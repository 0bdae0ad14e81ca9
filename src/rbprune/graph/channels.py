"""The channel graph of a model: its sites, their masks, and their removal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from rbprune.errors import UnprunableError, nearest
from rbprune.graph.plan import Plan
from rbprune.graph.sites import Part, Role, Site
from rbprune.graph.surgery import axis_width, keep_positions


@dataclass(frozen=True)
class LayerCost:
    """Multiply-accumulates for one example, and weights, of one convolution or linear layer."""

    name: str
    kind: str
    macs: int
    params: int


class ChannelGraph:
    """Made by ``rbprune.trace``. Channels are numbered as they are in the network now."""

    def __init__(
        self, model: nn.Module, sites: list[Site], frozen: dict[str, str], positions: dict[str, int], batch: int = 1
    ) -> None:
        self.model = model
        self.sites = sites
        self.frozen = frozen
        """Modules whose outputs may not be removed, each with the reason."""
        self._positions = positions
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._alive: dict[tuple[str, Role], Tensor] = {}
        self._width: dict[tuple[str, Role], int] = {}
        for site in sites:
            for part in site.parts:
                key = (part.module, part.role)
                width = self._axis_width(*key)
                self._alive[key], self._width[key] = torch.arange(width), width

    def __getitem__(self, name: str) -> Site:
        for site in self.sites:
            if site.name == name:
                return site
        names = [site.name for site in self.sites]
        reason = f"; it is frozen: {self.frozen[name]}" if name in self.frozen else nearest(name, names)
        raise UnprunableError(f"there is no site {name!r}{reason}; the sites are {', '.join(names[:8])} ...")

    def module(self, name: str) -> nn.Module:
        """The module of that name."""
        return self._modules[name]

    def _axis_width(self, module: str, role: Role) -> int:
        return axis_width(self._modules[module], role)

    def places(self, site: Site, part: Part) -> Tensor:
        """Positions now, on the part's axis, of the channels that are left: [channels, positions per channel]."""
        return torch.searchsorted(self._alive[part.module, part.role], part.positions[site.alive])

    def _check(self, site: Site, drop: Sequence[int]) -> list[int]:
        drop = sorted({int(c) for c in drop})
        if drop and not (drop[0] >= 0 and drop[-1] < site.channels):
            raise UnprunableError(f"site {site.name!r} has channels 0..{site.channels - 1}; asked to remove {drop[-1]}")
        if len(drop) == site.channels:
            raise UnprunableError(f"removing all {site.channels} channels of {site.name!r} leaves nothing; keep one")
        return drop

    @contextmanager
    def mask(self, drop: Mapping[str, Sequence[int]]) -> Iterator[None]:
        """Inside, every consumer sees zeros in place of these channels."""
        handles = []
        try:
            for name, channels in drop.items():
                site = self[name]
                gone = torch.tensor(self._check(site, channels), dtype=torch.long)
                for part in site.parts:
                    if part.role == "in":
                        module = self._modules[part.module]
                        multiplier = torch.ones(self._axis_width(part.module, "in"))
                        multiplier[self.places(site, part)[gone].flatten()] = 0
                        handles.append(module.register_forward_pre_hook(_Multiply(multiplier)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def remove(self, drop: Mapping[str, Sequence[int]], *, optimizer: torch.optim.Optimizer | None = None) -> Plan:
        """Remove channels physically and in place; the optimizer's state follows. Returns the plan so far."""
        checked = {name: self._check(self[name], channels) for name, channels in drop.items()}
        for name, gone in checked.items():
            site = self[name]
            keep = torch.ones(site.channels, dtype=torch.bool)
            keep[gone] = False
            if not gone:
                continue
            for part in site.parts:
                key = (part.module, part.role)
                stay = torch.ones(len(self._alive[key]), dtype=torch.bool)
                stay[self.places(site, part)[~keep].flatten()] = False
                keep_positions(self._modules[part.module], part.role, stay.nonzero().flatten(), optimizer)
                self._alive[key] = self._alive[key][stay]
            site.alive = site.alive[keep]
        return self.plan()

    def plan(self) -> Plan:
        """All that has been removed since the trace."""
        axes: dict[str, dict[str, list[int]]] = {}
        for (module, role), alive in self._alive.items():
            if len(alive) < self._width[module, role]:
                axes.setdefault(module, {})[role] = alive.tolist()
        sites = {s.name: {"channels": s.original, "kept": s.alive.tolist()} for s in self.sites}
        return Plan(axes, sites)

    def layers(self) -> list[LayerCost]:
        """What each convolution and linear layer costs now, front to back; nothing else is counted."""
        found = []
        for name, positions in self._positions.items():
            module = self._modules[name]
            if isinstance(module, _ConvNd | nn.Linear):
                kind = "conv" if isinstance(module, _ConvNd) else "linear"
                weights = module.weight.numel()
                found.append(LayerCost(name, kind, positions * weights, weights))
        return found

    def macs(self) -> int:
        """Multiply-accumulates of convolutions and linear layers for one example."""
        return sum(layer.macs for layer in self.layers())

    def params(self) -> int:
        """Weights of convolutions and linear layers (no biases, no normalisation), as in the paper's tables."""
        return sum(layer.params for layer in self.layers())

    def macs_per_channel(self, site: Site) -> float:
        """MACs that disappear from the network as it is now with one channel: its filters and its columns."""
        total = 0.0
        for part in site.parts:
            if part.role != "norm":
                width = self._axis_width(part.module, part.role)
                share = part.positions.shape[1] / width
                total += share * self._positions[part.module] * self._modules[part.module].weight.numel()
        return total


class _Multiply:
    """A forward pre-hook that multiplies the channels of a module's input."""

    def __init__(self, multiplier: Tensor) -> None:
        self.multiplier = multiplier

    def __call__(self, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, *rest = args
        multiplier = self.multiplier.to(x.device, x.dtype)
        if isinstance(module, _ConvNd):
            multiplier = multiplier.view(-1, *[1] * (module.weight.dim() - 2))
        return (x * multiplier, *rest)
