"""Sites: the sets of channels that a pruning method decides about."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rbprune.graph.size_attributes import Counted

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
    counted: Counted | None = None
    """The attribute of a module that holds the number of its positions, where one does and no tensor."""


class Part(NamedTuple):
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


_PLACES = ".places"


def places_of(layer: str) -> str:
    """The owner of the axis of the channels to each of which a layer is applied alike."""
    return layer + _PLACES


def layer_at(owner: str) -> str | None:
    """The layer whose ``places_of`` this is; None where it is something else.

    >>> layer_at(places_of("mix")), layer_at("mix")
    ('mix', None)
    """
    return owner.removesuffix(_PLACES) if owner.endswith(_PLACES) else None


def collect_sites(axes: Iterable[Axis], component: Tensor) -> list[Site]:
    """Group the channels that occur on the same axes into sites, in the order of the axes.

    Channels that nobody makes (network inputs, parameters on their own), frozen ones, and a channel that is alone are
    no sites.
    """
    axes = list(axes)
    sites = []
    names: dict[str, int] = defaultdict(int)
    for numbers, positions in _groups([axis.ids.numpy() for axis in axes], component.numpy()):
        if len(positions) < 2:
            continue
        times = Counter(numbers)  # they are in order
        own = torch.from_numpy(positions).split(list(times.values()), 1)
        parts = [Part(axes[n].owner, axes[n].role, p) for n, p in zip(times, own, strict=True)]
        made_by = next((part.owner for part in parts if part.role == "out"), None)
        if made_by is None:
            continue
        names[made_by] += 1
        suffix = f"#{names[made_by]}" if names[made_by] > 1 else ""
        sites.append(Site(made_by + suffix, parts, alive=torch.arange(len(positions))))
    return sites


Integers = npt.NDArray[np.int64]


def _groups(ids: list[Integers], channel_of: Integers) -> list[tuple[list[int], Integers]]:
    """Sets of channels that occur on the same axes equally often, in the order of their first axis and position.

    ``ids[a]`` are the identities along axis a, and ``channel_of`` gives the channel of each (0 for none). Each set is
    (axes [k], positions [members, k]): member m's i-th occurrence is at ``positions[m, i]`` of axis ``axes[i]``. In
    numpy, which takes a third of torch's time for arrays as short as these.
    """
    if not ids:
        return []
    channel = channel_of[np.concatenate(ids)]
    widths = np.array([len(own) for own in ids])
    number = np.repeat(np.arange(len(ids)), widths)
    position = np.arange(len(channel)) - np.repeat(widths.cumsum() - widths, widths)
    order = np.argsort(channel, kind="stable")
    order = order[np.searchsorted(channel[order], 1) :]
    if not len(order):
        return []
    starts = np.flatnonzero(np.diff(channel[order], prepend=0))
    counts = np.diff(starts, append=len(order))
    kind = _kinds(number[order], starts, counts)
    first = order[starts]
    by_kind = np.lexsort((first, kind))
    ends = np.flatnonzero(np.diff(kind[by_kind], append=-1)) + 1
    found = []
    for begin, end in pairwise((0, *ends.tolist())):
        members = by_kind[begin:end]
        rows = order[starts[members, None] + np.arange(counts[members[0]])]
        found.append((int(first[members[0]]), number[rows[0]].tolist(), position[rows]))
    return [(numbers, positions) for _, numbers, positions in sorted(found, key=lambda group: group[0])]


def _kinds(numbers: Integers, starts: Integers, counts: Integers) -> Integers:
    """A number for each run of numbers (``counts`` of them from ``starts`` on): the same where the runs are equal."""
    weights = np.random.default_rng(0).integers(1 << 62, size=numbers.max() + 1)
    sums = np.add.reduceat(weights[numbers], starts)  # wraps around, which does no harm: equal runs have equal sums
    _, one, kind = np.unique(sums, return_index=True, return_inverse=True)
    other = np.repeat(starts[one][kind] - starts, counts) + np.arange(len(numbers))
    if (counts == counts[one][kind]).all() and (numbers == numbers[other]).all():
        return kind
    runs = [tuple(numbers[start : start + count].tolist()) for start, count in zip(starts, counts, strict=True)]
    known = {run: i for i, run in enumerate(dict.fromkeys(runs))}  # sure, but far slower
    return np.array([known[run] for run in runs])
