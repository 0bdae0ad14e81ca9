"""What a batch of inputs means to a model: one argument, several, or named ones."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn
from torch.utils.hooks import RemovableHandle


class Arguments(NamedTuple):
    """What a model is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def arguments(inputs: Any) -> Arguments:
    """A tuple or list is several arguments (loaders make lists of tuples), a mapping holds them by name.

    >>> arguments([1, 2]), arguments({"x": 1}), arguments(3)
    (Arguments(args=(1, 2), kwargs={}), Arguments(args=(), kwargs={'x': 1}), Arguments(args=(3,), kwargs={}))
    """
    if isinstance(inputs, Arguments):
        return inputs
    if isinstance(inputs, Mapping):
        return Arguments((), dict(inputs))
    return Arguments(tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {})


def call(model: nn.Module, inputs: Any) -> Any:
    """Apply a model to a batch of inputs."""
    args, kwargs = arguments(inputs)
    return model(*args, **kwargs)


def inputs_by_position(module: nn.Module) -> RemovableHandle:
    """From now on hooks of the module find its inputs in ``args``, also where it is called as ``module(input=x)``.

    >>> import torch
    >>> layer, seen = nn.Linear(2, 1), []
    >>> handle = inputs_by_position(layer)
    >>> looks = layer.register_forward_hook(lambda module, args, output: seen.append(len(args)))
    >>> _ = layer(input=torch.zeros(3, 2))
    >>> seen
    [1]
    """

    def move(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not kwargs:
            return None
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
        return bound.args, bound.kwargs

    return module.register_forward_pre_hook(move, prepend=True, with_kwargs=True)
