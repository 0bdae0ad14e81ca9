"""Numbers that are sizes of activations: they change when channels go, so whoever uses one is bound to them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from rbprune.graph.ids import along, compact, tensors_in, varies
from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind

CountedChannels = list[Tensor]
"""The channels (vectors of identities) whose number a size depends on."""


def note_size(propagation: Propagation, node: fx.Node, args: tuple[Any, ...]) -> None:
    """Remember which channels a number, or each number of a shape, depends on."""
    sources = [propagation.counted[n] for n in node.all_input_nodes if n in propagation.counted]
    asked = _counted_by_question(node, args)
    if asked is not None:
        propagation.counted[node] = asked
    elif tensors_in((args, info(node).result)):
        return  # an activation, not a number
    elif sources and getattr(node.target, "__name__", "") == "getitem" and isinstance(sources[0], tuple):
        propagation.counted[node] = sources[0][args[1]]
    elif sources:
        propagation.counted[node] = _channel_vectors(sources)


def counted_by_arguments(propagation: Propagation, node: fx.Node) -> CountedChannels:
    """The channels whose number the operation's arguments depend on."""
    return _channel_vectors([propagation.counted[n] for n in node.all_input_nodes if n in propagation.counted])


def counted_by(propagation: Propagation, number: Any) -> CountedChannels:
    """The channels whose number one argument of an operation depends on."""
    return _channel_vectors([propagation.counted.get(number, [])]) if isinstance(number, fx.Node) else []


def size_follows(propagation: Propagation, counts: CountedChannels, x: Tensor, vector: Tensor | None = None) -> bool:
    """Whether a size made of these counts stays right for ``x`` when channels go; binds them where that helps.

    Other channels are bound to those of ``vector``, or to those of ``x``, index by index.
    """
    if vector is None:
        vector = next((v for d in range(x.dim()) if varies(x, d) and (v := along(x, d)) is not None), None)
    for count in counts:
        if _have_equal_shares(count, x):
            continue
        if vector is None or len(vector) != len(count):
            return False
        propagation.ids.merge(vector, count)
    return True


def _have_equal_shares(count: Tensor, x: Tensor) -> bool:
    """Whether every channel has the same share of a count as of ``x``: then both shrink in the same proportion.

    >>> _have_equal_shares(torch.tensor([1, 2]), torch.tensor([1, 1, 2, 2]))
    True
    >>> _have_equal_shares(torch.tensor([1, 2, 2]), torch.tensor([1, 1, 2]))
    False
    """
    counted, times = torch.unique(count, return_counts=True)
    held, places = torch.unique(compact(x)[0], return_counts=True)
    return torch.equal(counted, held) and bool((times * places[0] == places * times[0]).all())


def freeze_counted(propagation: Propagation, node: fx.Node, counts: CountedChannels) -> None:
    """Freeze channels whose number an operation uses, so that it must not change."""
    for count in counts:
        propagation.freeze(node, count, "uses the number of channels", Kind.SIZE_USED)


def preserve_decision(propagation: Propagation, node: fx.Node) -> None:
    """A decision must stay what it is: sizes found equal are bound to each other, all else that was asked stays."""
    question = node.args[0]
    if isinstance(question, fx.Node) and _are_equal(question) and all(map(_is_plain_size, question.args)):
        left, right = (propagation.counted.get(n, []) for n in question.args)  # type: ignore[arg-type]
        if _bind_pairs(propagation, left, right):
            return
    freeze_counted(propagation, node, counted_by_arguments(propagation, node))


def _is_plain_size(number: Any) -> bool:
    """Whether it is a size or a shape, or a part of one: two that are equal need not stay so after arithmetic."""
    if not isinstance(number, fx.Node):
        return False
    name = getattr(number.target, "__name__", str(number.target))
    return name in ("size", "getattr") or (name == "getitem" and _is_plain_size(number.args[0]))


def _are_equal(question: fx.Node) -> bool:
    name, answer = getattr(question.target, "__name__", ""), info(question).result
    return (name == "eq" and answer is True) or (name == "ne" and answer is False)


def _bind_pairs(propagation: Propagation, left: Any, right: Any) -> bool:
    """Let channels that are counted on both sides go together; False where something is counted on one side only."""
    if isinstance(left, tuple) != isinstance(right, tuple):
        return False
    pairs = list(zip(left, right, strict=True)) if isinstance(left, tuple) else [(left, right)]
    if any(len(a) != len(b) or [v.shape for v in a] != [v.shape for v in b] for a, b in pairs):
        return False
    for a, b in pairs:
        for one, other in zip(a, b, strict=True):
            propagation.ids.merge(one, other)
    return True


def _counted_by_question(node: fx.Node, args: tuple[Any, ...]) -> Any:
    """What a question about a tensor's size depends on."""
    if not args or not isinstance(args[0], Tensor):
        return None
    x, rest = args[0], args[1:]
    name = getattr(node.target, "__name__", str(node.target))
    if name == "size" and (rest or node.kwargs):
        return _counted_by_dimension(x, rest[0] if rest else node.kwargs["dim"])
    if name == "size" or (name == "getattr" and rest == ("shape",)):
        return counted_by_shape(x)
    if name == "len":
        return _counted_by_dimension(x, 0)
    if name == "numel":
        return [torch.unique(compact(x)[0])] if any(varies(x, d) for d in range(x.dim())) else []
    return None


def counted_by_shape(x: Tensor) -> tuple[CountedChannels, ...]:
    """For each dimension the channels whose number is its size."""
    return tuple(_counted_by_dimension(x, d) for d in range(x.dim()))


def _counted_by_dimension(x: Tensor, dim: Any) -> CountedChannels:
    """The channels whose number is the size of one dimension."""
    if not varies(x, dim):
        return []
    vector = along(x, dim)
    return [torch.unique(compact(x)[0]) if vector is None else vector]


def _channel_vectors(counts: Any) -> CountedChannels:
    """The counted channels of several sizes, or of all sizes of a shape, in one list."""
    return tensors_in(counts)
