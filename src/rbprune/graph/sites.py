"""Sites: the sets of channels that a pruning method decides about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

Role = Literal["out", "in", "columns", "along"]
"""How a module holds a channel.

``out`` makes it, ``in`` reads it (positions are those of the input), ``columns`` are the weights that read it where
they are not numbered as the input is (grouped convolution), ``along`` carries a parameter for it.
"""


@dataclass(frozen=True)
class Axis:
    """One dimension of an owner's tensors and, for each of its positions, the channel identity found there."""

    owner: str
    role: Role
    ids: Tensor
    tensors: tuple[tuple[str, int], ...] = ()
    """Names of the tensors that have this dimension, each with its number."""


@dataclass(frozen=True)
class Part:
    """Where a site's channels lie on one axis: ``positions[c]`` are the original positions of channel c."""

    owner: str
    role: Role
    positions: Tensor


@dataclass
class Site:
    """Channels that are made and read together.

    ``residual`` is None outside residual blocks, "inside" for a branch of a block and "sum" for channels that pass
    through a residual sum; ``block`` names the block and ``downsample`` says that its shortcut is not the identity.
    """

    name: str
    parts: list[Part]
    residual: Literal["inside", "sum"] | None = None
    block: str | None = None
    downsample: bool = False
    alive: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))

    @property
    def channels(self) -> int:
        """Channels that are left."""
        return len(self.alive)

    @property
    def original(self) -> int:
        """Channels before anything was removed."""
        return len(self.parts[0].positions)

    @property
    def producers(self) -> list[str]:
        """Modules that make the channels."""
        return [part.owner for part in self.parts if part.role == "out"]

    @property
    def consumers(self) -> list[str]:
        """Modules that read the channels."""
        return [part.owner for part in self.parts if part.role == "in"]


def collect(axes: Iterable[Axis], component: Tensor) -> list[Site]:
    """Group the channels that occur on the same axes into sites, in the order of the axes.

    Channels that nobody makes (network inputs, parameters on their own), frozen ones, and a channel that is alone are
    no sites.
    """
    where: dict[int, dict[int, list[int]]] = defaultdict(dict)
    axes = list(axes)
    for number, axis in enumerate(axes):
        for position, channel in enumerate(component[axis.ids].tolist()):
            if channel:
                where[channel].setdefault(number, []).append(position)
    groups: dict[tuple[tuple[int, int], ...], list[dict[int, list[int]]]] = defaultdict(list)
    for places in where.values():
        groups[tuple((number, len(positions)) for number, positions in places.items())].append(places)
    sites = []
    names: dict[str, int] = defaultdict(int)
    for key, members in groups.items():
        parts = [
            Part(axes[number].owner, axes[number].role, torch.tensor([places[number] for places in members]))
            for number, _ in key
        ]
        made_by = [part.owner for part in parts if part.role == "out"]
        if not made_by or len(members) < 2:
            continue
        names[made_by[0]] += 1
        suffix = f"#{names[made_by[0]]}" if names[made_by[0]] > 1 else ""
        sites.append(Site(made_by[0] + suffix, parts, alive=torch.arange(len(members))))
    return sites
