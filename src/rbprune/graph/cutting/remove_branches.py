"""Whole branches removed from a network, in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from rbprune.errors import UnprunableError, nearest
from rbprune.graph.branch import Branch
from rbprune.graph.cutting.plan import RemovedBlock
from rbprune.graph.cutting.prove_branches import differs_without, prove_branches
from rbprune.graph.cutting.replace_modules import replace_modules
from rbprune.graph.reasons import Kind, Reason

if TYPE_CHECKING:
    from rbprune.graph.channel_graph import ChannelGraph


def find_branch(graph: ChannelGraph, name: str) -> Branch:
    """The branch of that name."""
    if name in graph.branches:
        return graph.branches[name]
    frozen = graph.frozen_branches
    why = f"; it is frozen: {frozen[name]}" if name in frozen else nearest(name, graph.branches)
    raise UnprunableError(
        f"there is no branch {name!r} to remove{why}; there are: {', '.join(graph.branches) or 'none'}"
    )


def check_branches(graph: ChannelGraph) -> None:
    """Prove all branches of a graph; those that cannot go exactly are frozen with what was found."""
    wrong = prove_branches(graph.model, graph.example_inputs, list(graph.branches.values()))
    for name, what in wrong.items():
        graph.freeze_branch(name, Reason(Kind.NOT_SUPPORTED, what))


def remove_branches(graph: ChannelGraph, names: Sequence[str], optimizer: torch.optim.Optimizer | None = None) -> None:
    """Remove the branches of these blocks, after the proof that this is exact; else nothing is changed."""
    branches = [graph.branches[name] for name in names]
    wrong = prove_branches(graph.model, graph.example_inputs, branches)
    if wrong:
        name, what = next(iter(wrong.items()))
        graph.freeze_branch(name, Reason(Kind.NOT_SUPPORTED, what))
        raise UnprunableError(f"the branch of {name!r} cannot be removed exactly: {what}; leave it out")
    together = differs_without(graph.model, graph.example_inputs, branches)
    if together is not None:
        raise UnprunableError(
            f"the branches of {', '.join(names)} cannot be removed together: {together}; remove them one after another"
        )
    history = graph.history()
    blocks = {}
    for branch in branches:
        layers = [layer for layer in graph.layers() if branch.removes(layer.name)]
        inner = [
            layer for block in history.plan.blocks.values() for layer in block.layers if branch.removes(layer.name)
        ]
        before = {layer.name: layer for layer in inner}  # of branches inside of it, which have gone before
        original = [layer for layer in history.scaled_to_original(layers) if layer.name not in before]
        blocks[branch.name] = RemovedBlock(dict(branch.replacements), original)
    replaced = {path: steps for block in blocks.values() for path, steps in block.modules.items()}
    replace_modules(graph.model, replaced, optimizer)
    graph.forget(blocks)


def fold_into_output(model: nn.Module, branch: Branch, factor: Tensor) -> None:
    """Multiply a branch by a factor, in the parameters of the module that gives its output."""
    if not branch.is_foldable:
        raise UnprunableError(
            f"no module at the end of the branch of {branch.name!r} takes up a factor ({branch.output!r} does not); "
            "leave it out"
        )
    with torch.no_grad():
        for parameter in model.get_submodule(branch.output).parameters(recurse=False):
            parameter.mul_(factor.detach().to(parameter).reshape(()))
