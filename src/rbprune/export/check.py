"""The check of an exported file against the network that it was made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.errors import ExportError
from rbprune.export.formats import Run
from rbprune.export.program import Batch, on_cpu
from rbprune.export.signature import batch_size, flat_tensors, pieces, with_batch
from rbprune.train.objective import mistakes
from rbprune.utils.inputs import call

TOLERANCE = 1e-4
"""The largest difference of an output from the network's own, relative to the largest value of that output."""


@torch.no_grad()
def check_file(run: Run, model: nn.Module, inputs: Any, batch: Batch, what: str) -> float:
    """The largest relative difference of the file from the network on real inputs; one above ``TOLERANCE`` is an error.

    A file for any batch size is checked with one example, with three and with all of ``inputs``.
    """
    inputs = on_cpu(inputs)
    sizes = sorted({1, 3, batch_size(inputs)}) if batch == "dynamic" else [batch]
    worst = 0.0
    for size in sizes:
        given = with_batch(inputs, size)
        wanted = flat_tensors(call(model, given))
        try:
            found = run(given)
        except Exception as error:
            raise ExportError(f"{what} does not run on a batch of {size}: {error}; it was not written") from error
        worst = max(worst, difference(found, wanted, what))
    if worst > TOLERANCE:
        raise ExportError(
            f"{what} differs from the network by {worst:.2g} of the largest output, and {TOLERANCE:g} is allowed; it "
            "was not written: try another format, or report the layer that differs"
        )
    return worst


def difference(found: Sequence[Tensor], wanted: Sequence[Tensor], what: str) -> float:
    """Over all outputs: the largest difference, relative to the largest value of the output.

    >>> difference([torch.tensor([1.0, 2.2])], [torch.tensor([1.0, 2.0])], "it")  # doctest: +ELLIPSIS
    0.1000...
    """
    shapes = [[tuple(tensor.shape) for tensor in outputs] for outputs in (found, wanted)]
    if shapes[0] != shapes[1]:
        raise ExportError(
            f"{what} gives outputs of the shapes {shapes[0]}, the network {shapes[1]}; it was not written"
        )
    worst = 0.0
    for ours, theirs in zip(found, wanted, strict=True):
        if not ours.numel():
            continue
        scale = theirs.double().abs().max().clamp_min(torch.finfo(torch.float32).tiny)
        apart = float((ours.double() - theirs.double()).abs().max() / scale)
        if not apart < torch.inf:
            raise ExportError(f"{what} or the network gives numbers that are not finite; it was not written")
        worst = max(worst, apart)
    return worst


def in_batches(run: Run, batch: Batch) -> Run:
    """The same file for batches of any size, also where it takes only one size."""
    if batch == "dynamic":
        return run

    def whole(inputs: Any) -> list[Tensor]:
        parts = [[output[:count] for output in run(piece)] for piece, count in pieces(inputs, batch)]
        return [torch.cat(outputs) for outputs in zip(*parts, strict=True)]

    return whole


def runs_of(model: nn.Module) -> Run:
    """The network itself, called as a file is."""

    def run(inputs: Any) -> list[Tensor]:
        with torch.no_grad():
            return flat_tensors(call(model, inputs))

    return run


def errors(runs: Sequence[Run], batches: Iterable[tuple[Any, Any]]) -> list[float] | None:
    """The top-1 error of each in per cent on the same batches, or None where this is no classification."""
    wrong, count = [0] * len(runs), 0
    for inputs, targets in _filled(batches):
        for number, run in enumerate(runs):
            outputs = run(on_cpu(inputs))
            found = mistakes(
                outputs[0] if len(outputs) == 1 else None, targets.cpu() if _is_tensor(targets) else targets
            )
            if found is None:
                return None
            wrong[number] += int(found.sum())
        count += len(targets)
    return [100.0 * mistaken / count for mistaken in wrong] if count else None


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _filled(batches: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    return ((inputs, targets) for inputs, targets in batches if not (_is_tensor(targets) and not len(targets)))
