"""Normalisation carries channels; where it runs over several of them, these go together or not at all."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx, nn

from rbprune.graph.ids import FROZEN, along, compact, varies
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind
from rbprune.graph.rules import attribute_sizes, size_dependence
from rbprune.graph.rules.shape import is_size


def batch_norm(propagation: Propagation, node: fx.Node, module: nn.Module, x: Tensor) -> Any:
    """Batch and instance normalisation: every channel on its own."""
    name = str(node.target)
    vector = along(x, 1)
    if vector is None:
        return propagation.refuse(node, (x,), "normalises channels that are not in dimension 1", Kind.WRONG_DIMENSION)
    names = ("weight", "bias", "running_mean", "running_var")
    propagation.axis(name, "along", vector, tuple((f"{name}.{n}", 0) for n in names))
    return x


def functional_batch_norm(
    propagation: Propagation,
    node: fx.Node,
    x: Tensor,
    *statistics: Any,
    weight: Any = None,
    bias: Any = None,
    **kwargs: Any,
) -> Any:
    """F.batch_norm: statistics and parameters, where they are the model's, follow the channels."""
    named = (kwargs.get("running_mean"), kwargs.get("running_var"), weight, bias)
    vector = along(x, 1)
    if vector is None:
        return propagation.refuse(node, (x,), "normalises channels that are not in dimension 1", Kind.WRONG_DIMENSION)
    return _with_parameters(propagation, node, x, vector, (*statistics, *named))


def _with_parameters(
    propagation: Propagation, node: fx.Node, x: Tensor, vector: Tensor, tensors: tuple[Any, ...]
) -> Tensor:
    """The channels ``vector`` of ``x`` go with their parameters and statistics, where these are the model's."""
    for tensor in tensors:
        if isinstance(tensor, Tensor):
            if bool((compact(tensor)[0] == FROZEN).any()):
                propagation.freeze(node, x, "with parameters that are computed", Kind.MEETS_FIXED)
            propagation.ids.merge(vector, tensor)
    return x


def group_norm(propagation: Propagation, node: fx.Node, module: nn.GroupNorm, x: Tensor) -> Any:
    """Group normalisation: a group's channels share statistics, so they go together or not at all."""
    name = str(node.target)
    vector = along(x, 1)
    if vector is None or module.num_groups == 1:
        return propagation.refuse(
            node, (x,), "normalises over channels: one less changes the others", Kind.MIXES_CHANNELS
        )
    groups = vector.view(module.num_groups, -1)
    propagation.ids.merge(groups, groups[:, :1])
    propagation.axis(name, "along", vector, ((f"{name}.weight", 0), (f"{name}.bias", 0)))
    return x


def functional_group_norm(
    propagation: Propagation,
    node: fx.Node,
    x: Tensor,
    num_groups: Any,
    weight: Any = None,
    bias: Any = None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """F.group_norm: whole groups go where their number follows the channels (``x.size(1) // 16``) or is held in an
    attribute, which can follow them; a written one does not change, so one channel less would change the others."""
    vector, counted = along(x, 1), size_dependence.counted_by_arguments(propagation, node)
    own = vector is not None and bool(counted) and all(torch.equal(count, vector) for count in counted)
    held = None if counted else attribute_sizes.counted_by(propagation, node, num_groups)
    follows = (own and is_size(node.args[1])) or held is not None
    if vector is None or not follows or num_groups == 1:
        size_dependence.freeze_counted(propagation, node, counted)
        for each in held or ():
            attribute_sizes.follow(propagation, node, each, torch.full((num_groups,), FROZEN))
        what = "normalises over groups of channels, whose number is written: one channel less changes the others"
        return propagation.refuse(node, (x, weight, bias), what, Kind.MIXES_CHANNELS)
    groups = vector.view(num_groups, -1)
    propagation.ids.merge(groups, groups[:, :1])
    for each in held or ():
        attribute_sizes.follow(propagation, node, each, groups[:, 0])
    return _with_parameters(propagation, node, x, vector, (weight, bias))


def layer_norm(
    propagation: Propagation, node: fx.Node, x: Tensor, normalized_shape: Any, *args: Any, **kwargs: Any
) -> Any:
    """F.layer_norm and nn.LayerNorm: exact only where they do not run over channels."""
    if any(varies(x, -1 - d) for d in range(len(tuple(normalized_shape)))):
        return propagation.refuse(
            node, (x,), "normalises over channels: one less changes the others", Kind.MIXES_CHANNELS
        )
    return x
