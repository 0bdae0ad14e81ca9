"""The proof that a branch can go: without it the network computes the same as with its output multiplied by 0.

A copy of the network in float64 is run on random numbers of the example's shapes, outputs and gradients are compared.
The network itself is not touched.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from rbprune.errors import ModelError, first_line
from rbprune.graph.branch import Branch, Replacements, is_replaced
from rbprune.graph.cutting.masking import multiply_output
from rbprune.graph.cutting.replace_modules import replace_modules
from rbprune.utils.inputs import call

TOLERANCE = 1e-12
"""The largest difference that counts as none, as a part of the largest value."""
_HALF = 0.5
"""A factor that is folded as a try; a product with it is exact."""
_EXAMPLES = 2
"""So many examples of the batch are run."""


def prove_branches(model: nn.Module, example_inputs: Any, branches: Sequence[Branch]) -> dict[str, str]:
    """Compare, for each branch that has not been proved yet, the network without it to the masked one.

    A branch for which they agree is left with the way to remove it that was found exact; returned are the others, each
    with what was found. All are tried at once, and one by one only where that fails, or where one lies
    inside of another, which would hide it.
    """
    waiting = [branch for branch in branches if not branch.is_proved]
    if not waiting:
        return {}
    copied = _Copy(model, example_inputs)
    apart = [branch for branch in waiting if not _is_inside_another(branch, waiting)]
    if copied.difference(apart, _together(apart)) is None:
        for branch in apart:
            branch.choices, branch.is_proved = branch.choices[:1], True
    wrong: dict[str, str] = {}
    for branch in waiting:
        found = None if branch.is_proved else _first_exact(copied, branch)
        if found is not None:
            wrong[branch.name] = found
    proved = [branch for branch in waiting if branch.is_proved]
    together = copied.folds(proved)
    for branch in proved:
        branch.is_foldable = together or copied.folds([branch])
    return wrong


def differs_without(model: nn.Module, example_inputs: Any, branches: Sequence[Branch]) -> str | None:
    """What is different between the network without all of these branches and the masked one; None where nothing is."""
    return _Copy(model, example_inputs).difference(branches, _together(branches))


def _together(branches: Iterable[Branch]) -> Replacements:
    return {path: steps for branch in branches for path, steps in branch.replacements.items()}


def _is_inside_another(branch: Branch, branches: Sequence[Branch]) -> bool:
    """Whether a module that is replaced without the branch would go with another branch."""
    others = [other.replacements for other in branches if other is not branch]
    return any(is_replaced(path, other) for path in branch.replacements for other in others)


def _first_exact(copied: _Copy, branch: Branch) -> str | None:
    """Leave a branch with the first exact way to remove it; returns what was found where there is none."""
    found = None
    for choice in branch.choices:
        found = copied.difference([branch], choice)
        if found is None:
            branch.choices, branch.is_proved = [choice], True
            return None
    return found


class _Copy:
    """A copy of a network in float64, in evaluation, and inputs for it."""

    def __init__(self, model: nn.Module, example_inputs: Any) -> None:
        try:
            self.model = copy.deepcopy(model).cpu().double().eval()
        except Exception as error:
            raise ModelError(
                f"this {type(model).__name__} cannot be copied, so the removal of a branch cannot be tried: "
                f"{first_line(error)}; let copy.deepcopy(model) work"
            ) from error
        generator = torch.Generator().manual_seed(0)
        for parameter in self.model.parameters():
            parameter.requires_grad_(parameter.is_floating_point())
            if parameter.dim() == 1 and parameter.is_floating_point():  # a scale of 0 would hide a difference
                parameter.data += 0.1 * torch.rand(parameter.shape, generator=generator, dtype=torch.float64)

        def some(value: Tensor) -> Tensor:
            value = value[:_EXAMPLES] if value.dim() > 1 else value
            if not value.is_floating_point():
                return value.cpu()
            return torch.randn(value.shape, generator=generator, dtype=torch.float64)

        self.inputs = tree_map_only(Tensor, some, example_inputs)

    def difference(self, branches: Sequence[Branch], replacements: Replacements) -> str | None:
        """What is different between the masked and the replaced network; None where nothing is."""
        try:
            with ExitStack() as hooks:
                for branch in branches:
                    hooks.callback(multiply_output(self.model.get_submodule(branch.output), 0.0))
                outputs, gradients = self._run()
            if not all(bool(output.isfinite().all()) for output in outputs):
                return "the network gives no finite numbers for random inputs, so nothing can be compared"
            undo = replace_modules(self.model, replacements)
            try:
                found = self._run()
            finally:
                undo()
        except Exception as error:
            return f"the network without it fails: {first_line(error)}"
        return _compare(outputs, found[0], "the outputs differ") or _compare(
            [gradients[name] for name in found[1]], list(found[1].values()), "the gradients differ"
        )

    def folds(self, branches: Sequence[Branch]) -> bool:
        """Whether the parameters of the last module of each branch take up a factor."""
        modules = [self.model.get_submodule(branch.output) for branch in branches]
        parameters = [list(module.parameters(recurse=False)) for module in modules]
        with torch.no_grad():
            removers = [multiply_output(module, _HALF) for module in modules]
            wanted = self._outputs()
            for remove in removers:
                remove()
            for parameter in itertools.chain(*parameters):
                parameter.mul_(_HALF)
            folded = self._outputs()
            for parameter in itertools.chain(*parameters):
                parameter.div_(_HALF)
        return all(parameters) and _compare(wanted, folded, "differ") is None

    def _outputs(self) -> list[Tensor]:
        with torch.random.fork_rng(devices=[]):
            outputs = call(self.model, tree_map_only(Tensor, Tensor.clone, self.inputs))
        return [z for z in tree_leaves(outputs) if isinstance(z, Tensor) and z.is_floating_point()]

    def _run(self) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The outputs, and the gradient of each parameter that is there."""
        with torch.enable_grad():
            outputs = self._outputs()
            total = torch.stack([output.square().sum() for output in outputs]).sum()
            names, parameters = zip(*self.model.named_parameters(), strict=True)
            found = torch.autograd.grad(total, parameters, allow_unused=True)
        gradients = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
        return [output.detach() for output in outputs], dict(zip(names, gradients, strict=True))


def _compare(wanted: Sequence[Tensor], found: Sequence[Tensor], what: str) -> str | None:
    """What differs, in words; None where nothing does."""
    if [tensor.shape for tensor in wanted] != [tensor.shape for tensor in found]:
        return f"{what} in shape"
    largest = max((float(tensor.abs().max()) for tensor in wanted if tensor.numel()), default=0.0)
    pairs = zip(wanted, found, strict=True)
    difference = max((float((a - b).abs().max()) for a, b in pairs if a.numel()), default=0.0)
    return None if difference <= TOLERANCE * max(largest, 1e-30) else f"{what} by {difference:.2g} of {largest:.2g}"
