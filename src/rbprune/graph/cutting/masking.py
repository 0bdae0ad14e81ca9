"""Zeros in place of channels or branches, put on a network by hooks and taken off again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from rbprune.graph.cutting.surgery import find_tensor
from rbprune.utils.inputs import inputs_by_position


def multiply_input(model: nn.Module, modules: dict[str, nn.Module], owner: str, factors: Tensor) -> Callable[[], None]:
    """Multiply the channels that a consumer reads, a module or a weight that a function uses; returns what puts things
    back."""
    if owner in modules:
        by_position = inputs_by_position(modules[owner])
        multiplied = modules[owner].register_forward_pre_hook(_MultiplyInput(factors))

        def take_off() -> None:
            multiplied.remove()
            by_position.remove()

        return take_off
    weight = find_tensor(model, owner)[2]
    assert weight is not None
    saved = weight.detach().clone()
    groups = len(factors) // weight.shape[1]  # each reads its own part of the channels
    columns = factors.to(weight).view(groups, -1).repeat_interleave(weight.shape[0] // groups, 0)
    weight.data.mul_(columns.view(*columns.shape, *[1] * (weight.dim() - 2)))

    def restore() -> None:
        weight.data.copy_(saved)

    return restore


def multiply_output(module: nn.Module, factor: float) -> Callable[[], None]:
    """Multiply what a module returns by a number; returns what puts things back."""

    def scale(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return output * factor

    return module.register_forward_hook(scale).remove


class _MultiplyInput:
    """A forward pre-hook that multiplies the channels of a module's input."""

    def __init__(self, multiplier: Tensor) -> None:
        self.multiplier = multiplier

    def __call__(self, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x, *rest = args
        multiplier = self.multiplier.to(x.device, x.dtype)
        if isinstance(module, _ConvNd):
            multiplier = multiplier.view(-1, *[1] * (x.dim() - 2))
        return (x * multiplier, *rest)
