"""A network as a program of ``torch.export``, which every format but safetensors is written from."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import tree_map

from rbprune.errors import ExportError, first_line
from rbprune.export.signature import Signature, batch_size, find_signature, has_batch, with_batch
from rbprune.utils.inputs import Arguments, arguments, call

Batch = int | Literal["dynamic"]
EXAMPLES = 2
"""Examples in the batch that a dynamic program is made with: torch.export takes a single one for a constant."""


@dataclass(frozen=True)
class Program:
    """A network that is ready to be written: a copy of its own in float32 on the CPU, in evaluation mode."""

    model: nn.Module
    exported: ExportedProgram
    signature: Signature
    batch: Batch


def make_program(model: nn.Module, inputs: Any, batch: Batch = "dynamic") -> Program:
    """Follow ``model`` on ``inputs`` with torch.export; what it cannot follow is an ``ExportError``."""
    model = for_export(model)
    example = with_batch(on_cpu(inputs), EXAMPLES if batch == "dynamic" else batch)
    with torch.no_grad():
        outputs = call(model, example)
    try:
        with silence():
            exported = torch.export.export(
                model, example.args, example.kwargs, dynamic_shapes=_dynamic_shapes(example, batch), strict=False
            )
    except Exception as error:
        remedy = "; --batch N writes a file for one batch size, which may be possible" if batch == "dynamic" else ""
        raise ExportError(
            f"torch.export cannot follow this {type(model).__name__} with batch = {batch}: "
            f"{first_line(error)}{remedy}; the format safetensors holds the weights of any network"
        ) from error
    return Program(model, exported, find_signature(exported, example, outputs), batch)


def for_export(model: nn.Module) -> nn.Module:
    """A copy in float32 on the CPU, in evaluation mode, without gradients; the model itself stays as it is."""
    return copy.deepcopy(model).cpu().float().eval().requires_grad_(False)


def on_cpu(inputs: Any) -> Arguments:
    """The inputs on the CPU, floating-point numbers in float32."""

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().cpu().float() if leaf.is_floating_point() else leaf.detach().cpu()

    args, kwargs = arguments(inputs)
    return Arguments(tree_map(move, args), tree_map(move, kwargs))


def _dynamic_shapes(example: Arguments, batch: Batch) -> Any:
    """For every tensor with a row for each example: its first size may change."""
    if batch != "dynamic":
        return None
    size, rows = batch_size(example), Dim("batch", min=1)

    def dynamic(leaf: Any) -> Any:
        return {0: rows} if has_batch(leaf, size) else None

    return tuple(tree_map(dynamic, value) for value in (*example.args, *example.kwargs.values()))


@contextmanager
def silence() -> Iterator[None]:
    """Inside, exporters neither warn nor log: what goes wrong shows in the check of the file."""
    before = logging.root.manager.disable
    try:
        logging.disable(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
