"""Sites: the sets of channels that a pruning method decides about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
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
    def keeps_one(self) -> bool:
        """Whether one of its channels must stay."""
        return True

    @property
    def producers(self) -> list[str]:
        """Modules that make the channels."""
        return [part.owner for part in self.parts if part.role == "out"]

    @property
    def consumers(self) -> list[str]:
        """Modules that read the channels."""
        return [part.owner for part in self.parts if part.role == "in"]


def collect_sites(axes: Iterable[Axis], component: Tensor) -> list[Site]:
    """Group the channels that occur on the same axes into sites, in the order of the axes.

    Channels that nobody makes (network inputs, parameters on their own), frozen ones, and a channel that is alone are
    no sites.
    """
    axes = list(axes)
    sites = []
    names: dict[str, int] = defaultdict(int)
    for numbers, positions in _groups([component[axis.ids].numpy() for axis in axes]):
        if len(positions) < 2:
            continue
        first = np.flatnonzero(np.diff(numbers, prepend=-1))  # they are in order
        widths = np.diff(first, append=len(numbers)).tolist()
        own = torch.from_numpy(positions).split(widths, 1)
        parts = [Part(axes[n].owner, axes[n].role, p) for n, p in zip(numbers[first].tolist(), own, strict=True)]
        made_by = [part.owner for part in parts if part.role == "out"]
        if not made_by:
            continue
        names[made_by[0]] += 1
        suffix = f"#{names[made_by[0]]}" if names[made_by[0]] > 1 else ""
        sites.append(Site(made_by[0] + suffix, parts, alive=torch.arange(len(positions))))
    return sites


Integers = npt.NDArray[np.int64]


def _groups(channels: list[Integers]) -> list[tuple[Integers, Integers]]:
    """Sets of channels that occur on the same axes equally often, in the order of their first axis and position.

    ``channels[a]`` are the channels along axis a (0 for none). Each set is (axes [k], positions [members, k]): member
    m's i-th occurrence is at ``positions[m, i]`` of axis ``axes[i]``. In numpy, which takes a third of torch's time for
    arrays as short as these.
    """
    if not channels:
        return []
    channel = np.concatenate(channels)
    widths = np.array([len(c) for c in channels])
    number = np.repeat(np.arange(len(channels)), widths)
    position = np.arange(len(channel)) - np.repeat(widths.cumsum() - widths, widths)
    order = np.argsort(channel, kind="stable")
    order = order[channel[order] != 0]
    starts = np.flatnonzero(np.diff(channel[order], prepend=0))
    counts = np.diff(starts, append=len(order))
    found = []
    for count in np.unique(counts):
        rows = order[starts[counts == count][:, None] + np.arange(count)]
        for members in _alike(rows, number[rows]):
            members = members[members[:, 0].argsort()]
            found.append((int(members[0, 0]), number[members[0]], position[members]))
    return [(numbers, positions) for _, numbers, positions in sorted(found, key=lambda group: group[0])]


def _alike(rows: Integers, keys: Integers) -> list[Integers]:
    """The rows, those with equal rows of keys together."""
    weights = np.random.default_rng(0).integers(1 << 62, size=keys.shape[1])
    sums = (keys * weights).sum(1)  # wraps around, which does no harm: equal keys have equal sums
    kinds, kind = np.unique(sums, return_inverse=True)
    groups = [np.flatnonzero(kind == k) for k in range(len(kinds))]
    if any((keys[group] != keys[group[0]]).any() for group in groups):
        kinds, kind = np.unique(keys, axis=0, return_inverse=True)  # sure, but far slower
        groups = [np.flatnonzero(kind.reshape(-1) == k) for k in range(len(kinds))]
    return [rows[group] for group in groups]
