"""What a batch of inputs means to a model: one argument, several, or named ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import nn


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
