"""What goes into a network and comes out of it, as flat lists of named tensors, which is what files know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, TensorArgument
from torch.utils._pytree import MappingKey, tree_flatten_with_path, tree_leaves, tree_map

from rbprune.errors import ExportError
from rbprune.utils.inputs import Arguments, arguments


@dataclass(frozen=True)
class Signature:
    """The names of the tensors that a network takes and gives."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    """The inputs that are given by name, in the order in which the file has them."""

    def tensors(self, inputs: Any) -> list[Tensor]:
        """The tensors of a batch of inputs, in the order of ``self.inputs``."""
        args, kwargs = arguments(inputs)
        if set(kwargs) != set(self.keywords):
            raise ExportError(f"the network was exported with the inputs {list(self.keywords)}; got {list(kwargs)}")
        return flat_tensors((args, [kwargs[name] for name in self.keywords]))


def find_signature(program: ExportedProgram, inputs: Any, outputs: Any) -> Signature:
    """Name the inputs as the forward's parameters are named, and the outputs by their place in what it returns."""
    specs = program.graph_signature.input_specs
    given = (s.arg for s in specs if s.kind is InputKind.USER_INPUT)
    names = tuple(arg.name for arg in given if isinstance(arg, TensorArgument))
    return Signature(names, tuple(output_names(outputs, taken=names)), tuple(arguments(inputs).kwargs))


def output_names(outputs: Any, taken: tuple[str, ...] = ()) -> list[str]:
    """Names for the tensors that a forward returns; one that an input has gets ``_output`` after it.

    >>> x = torch.zeros(1)
    >>> output_names(x), output_names((x, x)), output_names({"out": x, "aux": [x, x]})
    (['output'], ['output_0', 'output_1'], ['out', 'aux_0', 'aux_1'])
    """
    names = []
    for path, leaf in tree_flatten_with_path(outputs)[0]:
        if isinstance(leaf, Tensor):
            words = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]
            if not path or not isinstance(path[0], MappingKey):
                words = ["output", *words]
            name = re.sub(r"\W+", "_", "_".join(words))
            names.append(f"{name}_output" if name in taken else name)
    return names


def flat_tensors(values: Any) -> list[Tensor]:
    """The tensors in whatever a network takes or gives."""
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def batch_size(inputs: Any) -> int:
    """The number of examples in a batch of inputs: the first size of the first tensor."""
    for tensor in flat_tensors(tuple(arguments(inputs))):
        if tensor.dim():
            return tensor.shape[0]
    raise ExportError(
        "the example inputs hold no tensor with a batch dimension; give a batch such as torch.zeros(2, 3)"
    )


def with_batch(inputs: Any, size: int) -> Arguments:
    """The inputs with so many examples: the first ones, or all of them again and again.

    Every tensor whose first size is the number of examples has a row for each of them.

    >>> with_batch(torch.tensor([[1], [2]]), 3).args[0].flatten().tolist()
    [1, 2, 1]
    """
    have = batch_size(inputs)

    def rows(leaf: Any) -> Any:
        return leaf[torch.arange(size) % have] if has_batch(leaf, have) else leaf

    args, kwargs = arguments(inputs)
    return Arguments(tree_map(rows, args), tree_map(rows, kwargs))


def pieces(inputs: Any, size: int) -> Iterator[tuple[Arguments, int]]:
    """The batch in pieces of exactly ``size`` examples, each with how many of them count; the last one is filled up."""
    have = batch_size(inputs)
    args, kwargs = arguments(inputs)
    for first in range(0, have, size):

        def rows(leaf: Any, first: int = first) -> Any:
            return leaf[torch.arange(first, first + size) % have] if has_batch(leaf, have) else leaf

        yield Arguments(tree_map(rows, args), tree_map(rows, kwargs)), min(size, have - first)


def has_batch(leaf: Any, size: int) -> bool:
    """Whether this is a tensor with a row for each of ``size`` examples."""
    return isinstance(leaf, Tensor) and leaf.dim() > 0 and leaf.shape[0] == size
