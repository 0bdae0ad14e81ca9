"""Channel identities: integers that travel through the network in place of activations.

An id tensor has the shape of the activation it stands for; dimensions along which the identity does not change are
expanded (stride 0), so that it costs almost no memory and shape operations act on it as they act on data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from rbprune.graph.reasons import Reason

FROZEN = 0
"""The identity of everything that may not be removed; whatever is merged with it is frozen too."""

_MANY = 1024
"""So many identities are worth a look for repetitions, which do no harm."""


class IdSpace:
    """Hands out identities, remembers which of them must live or die together, and why some may not die."""

    def __init__(self) -> None:
        self._next = 1
        self._pairs: list[Tensor] = []
        self._reasons: list[tuple[Tensor, Reason]] = []
        self._bonds: list[tuple[Tensor, Reason]] = []

    def fresh(self, count: int) -> Tensor:
        """``count`` new identities."""
        start, self._next = self._next, self._next + count
        return torch.arange(start, self._next)

    def merge(self, a: Tensor, b: Tensor, bond: Reason | None = None) -> None:
        """Identities that meet in one value belong to one channel; ``bond`` tells what made them meet."""
        a, b = compact(*torch.broadcast_tensors(a, b))
        one, other = a.numpy(), b.numpy()
        different = one != other
        if different.any():
            pairs = np.stack([one[different], other[different]])
            if a.dim() > 1 and pairs.size > _MANY:
                keys = np.unique(pairs[0] << 32 | pairs[1])  # unique(axis=1) is a hundred times slower
                pairs = np.stack([keys >> 32, keys & 0xFFFFFFFF])
            self._pairs.append(torch.from_numpy(pairs))
            if bond is not None:
                self._bonds.append((self._pairs[-1].flatten(), bond))

    def freeze(self, ids: Tensor, reason: Reason) -> None:
        """These identities may not be removed."""
        ids = compact(ids)[0]
        ids = ids[ids != FROZEN]
        if len(ids) > _MANY:
            ids = torch.unique(ids)
        if len(ids):
            self._pairs.append(torch.stack([torch.zeros_like(ids), ids]))
            self._reasons.append((ids, reason))

    def components(self) -> Tensor:
        """For each identity the smallest identity of its connected set: FROZEN when it is frozen."""
        label = torch.arange(self._next)
        if not self._pairs:
            return label
        a, b = torch.cat(self._pairs, dim=1)
        while True:
            low = torch.minimum(label[a], label[b])
            new = label.scatter_reduce(0, a, low, "amin").scatter_reduce(0, b, low, "amin")
            new = new[new]
            if torch.equal(new, label):
                return label
            label = new

    def reasons(self) -> dict[int, Reason]:
        """For each frozen identity the first reason given for it (or for one it is connected to)."""
        return self._first_told(self._reasons)

    def bonds(self) -> dict[int, Reason]:
        """For each identity that was merged with others the first bond told of it (or of one it is connected to)."""
        return self._first_told(self._bonds)

    def _first_told(self, notes: list[tuple[Tensor, Reason]]) -> dict[int, Reason]:
        """For each identity the first note on it (or on one it is connected to)."""
        if not notes:
            return {}
        label = self._unfrozen_components()
        found: dict[int, Reason] = {}
        for ids, reason in notes:
            for component in torch.unique(label[ids]).tolist():
                found.setdefault(component, reason)
        held = torch.isin(label, torch.tensor(list(found)))
        return {i: found[c] for i, c in zip(held.nonzero()[:, 0].tolist(), label[held].tolist(), strict=True)}

    def _unfrozen_components(self) -> Tensor:
        """Connected sets as they would be if nothing were frozen."""
        alone = IdSpace()
        alone._next = self._next
        alone._pairs = [pairs[:, (pairs != FROZEN).all(0)] for pairs in self._pairs]
        return alone.components()


_PLAIN = {bool, int, float, str, type(None), slice, torch.Size}


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a value, also in lists, tuples and dicts.

    >>> tensors_in([(torch.tensor(1), 2), {"a": torch.tensor(3)}])
    [tensor(1), tensor(3)]
    """
    kind = type(value)
    if kind is Tensor:
        return [value]
    if kind in _PLAIN:
        return []
    if isinstance(value, tuple | list):
        return [tensor for each in value for tensor in tensors_in(each)]
    if isinstance(value, dict):
        return [tensor for each in value.values() for tensor in tensors_in(each)]
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def compact(*ids: Tensor) -> Sequence[Tensor]:
    """The same tensors without the repetitions that all of them share (dimensions with stride 0)."""
    strides = [t.stride() for t in ids]
    shared = [not any(steps) for steps in zip(*strides, strict=True)]
    if not any(shared):
        return ids
    return [
        t.as_strided([min(1, n) if s else n for n, s in zip(t.shape, shared, strict=True)], stride)
        for t, stride in zip(ids, strides, strict=True)
    ]


def along(ids: Tensor, dim: int) -> Tensor | None:
    """The identities along ``dim``, or None when they also change along another dimension.

    >>> along(torch.arange(3).view(1, 3, 1).expand(2, 3, 4), 1)
    tensor([0, 1, 2])
    """
    dim = dim % ids.dim()
    strides, shape = ids.stride(), ids.shape
    if all(d == dim or strides[d] == 0 or shape[d] == 1 for d in range(len(shape))) and ids.numel():
        return ids.as_strided((shape[dim],), (strides[dim],))
    small = compact(ids)[0]
    if small.shape[dim] != ids.shape[dim]:
        small = small.expand([ids.shape[d] if d == dim else s for d, s in enumerate(small.shape)])
    index = tuple(slice(None) if d == dim else 0 for d in range(ids.dim()))
    vector = small[index]
    single = [-1 if d == dim else 1 for d in range(ids.dim())]
    if small.numel() > vector.numel() and not bool((small == vector.view(single)).all()):
        return None
    return vector


def spread(vector: Tensor, dim: int, shape: Sequence[int]) -> Tensor:
    """An id tensor of ``shape`` whose identities run along ``dim``."""
    dim = dim % len(shape)
    return vector.view([-1 if d == dim else 1 for d in range(len(shape))]).expand(list(shape))


def varies(ids: Tensor, dim: int) -> bool:
    """Whether the identity changes along ``dim``.

    >>> varies(torch.arange(3).view(1, 3, 1).expand(2, 3, 4), 1), varies(torch.arange(3).view(3, 1).expand(3, 4), 1)
    (True, False)
    """
    if ids.stride(dim) == 0 or ids.shape[dim] == 1:
        return False
    small = compact(ids)[0]
    return small.shape[dim] > 1 and not bool((small == small.narrow(dim, 0, 1)).all())
