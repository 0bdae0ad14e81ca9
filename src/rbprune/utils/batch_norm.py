"""The batch normalisation of a model: which layers it is, and how many examples they need to train."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map_only

from rbprune.utils.inputs import call
from rbprune.utils.modes import evaluating, modes_kept


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """All layers of batch normalisation, of any dimension.

    >>> len(batch_norms(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))))
    1
    """
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def norms_of_single_values(model: nn.Module, example_inputs: Any) -> list[str]:
    """Names of the layers of batch normalisation that see one value of each channel in an example.

    They cannot train on a batch of one example: a single value has no variance, and torch refuses it. A layer that
    ``model.train()`` leaves in evaluation is not one of them.

    >>> head = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(2))
    >>> norms_of_single_values(head, torch.zeros(1, 1, 8, 8))
    ['3']
    """
    found: list[str] = []
    handles = []
    with modes_kept(model):
        model.train()
        training = [(name, m) for name, m in model.named_modules() if isinstance(m, _BatchNorm) and m.training]
    if not training:
        return found
    for name, norm in training:

        def look(module: nn.Module, args: tuple[Tensor, ...], name: str = name) -> None:
            if math.prod(args[0].shape[2:]) == 1 and name not in found:
                found.append(name)

        handles.append(norm.register_forward_pre_hook(look))
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    inputs = tree_map_only(Tensor, lambda tensor: tensor.to(device), example_inputs)
    try:
        with evaluating(model), torch.no_grad(), torch.random.fork_rng(devices=[]):
            call(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found
