"""Products of activations that sum over a dimension: matmul, bmm, einsum and attention.

Dimensions that stay in the result carry their channels on. Channels that are summed over stay: one of them could go
from both factors, but masks and noise stand on the inputs of layers, and here no layer reads them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from rbprune.graph.ids import tensors_in, varies
from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind
from rbprune.graph.rules.elementwise import freeze_partners

_SUMMED = "sums over channels, where no factor can stand on them"


def matmul(propagation: Propagation, node: fx.Node, x: Tensor, y: Tensor) -> Any:
    """matmul, bmm, mm, @: over the last dimension of one and the last but one of the other."""
    if x.dim() < 2 or y.dim() < 2:
        return propagation.refuse(node, (x, y), "of a vector has no channel rule", Kind.NO_RULE)
    letters = "abcdefghijklmnopq"[: info(node).result.dim() - 2]
    left, right = letters[len(letters) - x.dim() + 2 :] + "xz", letters[len(letters) - y.dim() + 2 :] + "zy"
    return _product(propagation, node, [(x, left), (y, right)], letters + "xy")


def einsum(propagation: Propagation, node: fx.Node, equation: str, *operands: Any) -> Any:
    """einsum of two tensors, with its result written out."""
    tensors = tensors_in(operands)
    terms, _, result = equation.replace(" ", "").partition("->")
    labels = terms.split(",")
    plain = "->" in equation and "." not in equation and all(len(set(term)) == len(term) for term in labels)
    if not plain or len(tensors) != 2 or [len(term) for term in labels] != [t.dim() for t in tensors]:
        return propagation.refuse(node, operands, "of this form has no channel rule", Kind.NO_RULE)
    return _product(propagation, node, list(zip(tensors, labels, strict=True)), result)


def attention(
    propagation: Propagation, node: fx.Node, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
) -> Any:
    """scaled_dot_product_attention: the channels of the values go on, queries and keys are summed over."""
    for each in (query, key, *tensors_in((args, kwargs))):
        propagation.freeze(node, each, _SUMMED, Kind.MIXES_CHANNELS)
    shape = info(node).result.shape
    if varies(value, -2) or value.dim() != len(shape) or kwargs.get("enable_gqa"):
        return propagation.refuse(node, (value,), "mixes channels", Kind.MIXES_CHANNELS)
    return value.narrow(-2, 0, 1).expand(shape)


def _product(propagation: Propagation, node: fx.Node, factors: list[tuple[Tensor, str]], result: str) -> Any:
    """The identities of a product of two tensors whose dimensions have letters; those not in ``result`` are summed."""
    carried = []
    for ids, letters in factors:
        if any(varies(ids, d) for d, letter in enumerate(letters) if letter not in result):
            propagation.freeze(node, ids, _SUMMED, Kind.MIXES_CHANNELS)
        elif any(varies(ids, d) for d in range(ids.dim())):
            carried.append(_laid_out(ids, letters, result))
        else:
            propagation.freeze(node, ids, "multiplies channels by it", Kind.MEETS_FIXED)
    shape = info(node).result.shape
    if len(carried) == 1:
        return carried[0].expand(shape)
    if carried and _varying(carried[0]) == _varying(carried[1]):  # a product for each channel, of that of both
        one, other = carried
        propagation.ids.merge(one, other)
        frozen = freeze_partners(propagation, node, one, other)
        return (torch.maximum(one, other) if frozen else one).expand(shape)
    if carried:
        return propagation.refuse(node, [ids for ids, _ in factors], "mixes channels", Kind.MIXES_CHANNELS)
    return propagation.frozen_like(info(node).result)


def _varying(ids: Tensor) -> list[int]:
    return [d for d in range(ids.dim()) if varies(ids, d)]


def _laid_out(ids: Tensor, letters: str, result: str) -> Tensor:
    """The identities with their dimensions where the result has them, and one place in all others."""
    for d, letter in enumerate(letters):
        if letter not in result:
            ids = ids.narrow(d, 0, 1)
    kept = [letter for letter in letters if letter in result]
    ids = ids.squeeze([d for d, letter in enumerate(letters) if letter not in result])
    ids = ids.permute([kept.index(letter) for letter in result if letter in kept])
    for d, letter in enumerate(result):
        if letter not in kept:
            ids = ids.unsqueeze(d)
    return ids
