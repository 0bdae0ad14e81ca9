"""A change of a network that is made as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def unchanged_on_error(model: nn.Module) -> Iterator[None]:
    """Inside, tensors and attributes of the model may be replaced; after an error they are those of before.

    Cuts replace tensors. What changes a tensor in its place, such as ``load_state_dict``, is not put back.
    """
    before = [
        (module, dict(vars(module)), dict(module._parameters), dict(module._buffers)) for module in model.modules()
    ]
    try:
        yield
    except BaseException:
        for module, attributes, parameters, buffers in before:
            vars(module).clear()
            vars(module).update(attributes)
            module._parameters.clear()
            module._parameters.update(parameters)
            module._buffers.clear()
            module._buffers.update(buffers)
        raise
