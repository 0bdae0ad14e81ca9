"""Weight norm, w = g v / ||v||, old style (a hook) and new (a parametrization): changed so that w is what it should be.

A cut or a factor along another dimension than the one g has changes ||v||; g takes up the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.weight_norm import WeightNorm


@dataclass(frozen=True)
class NormedWeight:
    """Where magnitude g and direction v of a weight are; ``dim`` is the dimension of g (-1: g is one number)."""

    module: nn.Module
    leaf: str
    holder: nn.Module
    g: str
    v: str
    dim: int

    def norm(self) -> Tensor:
        """||v||, in the shape of g."""
        return torch.norm_except_dim(getattr(self.holder, self.v).detach(), 2, self.dim)

    def adjust_magnitude(self, before: Tensor | None) -> None:
        """After v has changed: scale g by the new norm over the one before, and refresh a stored weight."""
        g, v = getattr(self.holder, self.g), getattr(self.holder, self.v)
        if before is not None:
            after = self.norm()
            v.data.masked_fill_(after == 0, 1)  # a weight of zeros: any direction will do, but none is not a number
            g.data.mul_(after / before)
        if self.holder is self.module:
            setattr(self.module, self.leaf, torch._weight_norm(v.detach(), g.detach(), self.dim))


def find(module: nn.Module, leaf: str) -> NormedWeight | None:
    """How ``module.leaf`` is normed, or None when it is not.

    >>> layer = torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    >>> find(layer, "weight").dim, find(layer, "bias")
    (0, None)
    """
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm) and hook.name == leaf:
            return NormedWeight(module, leaf, module, f"{leaf}_g", f"{leaf}_v", hook.dim)
    lists = module._modules.get("parametrizations")
    if isinstance(lists, nn.ModuleDict) and leaf in lists:
        steps = list(lists[leaf].children())
        if len(steps) == 1 and isinstance(steps[0], _WeightNorm):
            return NormedWeight(module, leaf, lists[leaf], "original0", "original1", steps[0].dim)
    return None
