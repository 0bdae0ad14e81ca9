"""Products that sum over a dimension: masked == removed, in evaluation and in training, gradients included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.graph.operations import Case, Net, Refusal, check_operation, check_refused, conv


def heads(x: Tensor) -> Tensor:
    return x.unflatten(2, (2, -1)).transpose(1, 2)


def attended(n: Net, x: Tensor) -> Tensor:
    q, k, v = heads(n.q(x)), heads(n.k(x)), heads(n.v(x))
    return n.out((q @ k.transpose(-2, -1)).softmax(-1).matmul(v).transpose(1, 2).flatten(2))


def fused(n: Net, x: Tensor) -> Tensor:
    y = F.scaled_dot_product_attention(heads(n.q(x)), heads(n.k(x)), heads(n.v(x)))
    return n.out(y.transpose(1, 2).flatten(2))


def attention(forward: object) -> Net:
    return Net(forward, q=nn.Linear(3, 8), k=nn.Linear(3, 8), v=nn.Linear(3, 12), out=nn.Linear(12, 2))  # type: ignore[arg-type]


NETS: dict[str, Case] = {
    "attention by hand": (lambda: attention(attended), (5, 3), {"v": 6}),
    "attention as a function": (lambda: attention(fused), (5, 3), {"v": 6}),
    "bmm": (
        lambda: Net(
            lambda n, x: n.b(torch.bmm(n.a(x).flatten(2), n.mix.expand(3, 20, 20)).unflatten(2, (4, 5))),
            **{"a": conv(3, 6), "b": conv(6, 2)},
            mix=nn.Parameter(torch.randn(20, 20)),
        ),
        (3, 4, 5),
        {"a": 6},
    ),
    "@ from the left, without a batch": (
        lambda: Net(
            lambda n, x: n.b(n.mix @ n.a(x)), a=nn.Linear(3, 6), b=nn.Linear(6, 2), mix=nn.Parameter(torch.randn(5, 5))
        ),
        (5, 3),
        {"a": 6},
    ),
    "a product for each channel": (
        lambda: Net(
            lambda n, x: n.b(torch.matmul(n.a(x), F.relu(n.c(x)).transpose(2, 3))),
            **{"a": conv(3, 6), "c": conv(3, 6), "b": conv(6, 2)},
        ),
        (3, 4, 5),
        {"a": 6},
    ),
    "einsum": (
        lambda: Net(
            lambda n, x: n.b(torch.einsum("nchw, wv -> nvhc", n.a(x), n.mix).permute(0, 3, 2, 1)),
            **{"a": conv(3, 6), "b": conv(6, 2)},
            mix=nn.Parameter(torch.randn(5, 7)),
        ),
        (3, 4, 5),
        {"a": 6},
    ),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETS)
def test_masked_equals_removed(name: str, training: bool) -> None:
    check_operation(*NETS[name], training)


def product(forward: object) -> Net:
    return Net(forward, a=conv(3, 6), c=conv(3, 6), b=nn.Linear(20, 2))  # type: ignore[arg-type]


SUMMED = "sums over channels, where no factor can stand on them"
REFUSED: dict[str, Refusal] = {
    "queries": (lambda: attention(attended), (5, 3), f"matmul {SUMMED}"),
    "queries of the function": (lambda: attention(fused), (5, 3), f"scaled_dot_product_attention {SUMMED}"),
    "over channels": (
        lambda: product(lambda n, x: n.b(torch.bmm(n.a(x).flatten(2).transpose(1, 2), n.c(x).flatten(2)))),
        (3, 4, 5),
        f"bmm {SUMMED}",
    ),
    "over channels by a parameter": (
        lambda: Net(
            lambda n, x: n.b(n.a(x) @ n.w), a=nn.Linear(3, 6), b=nn.Linear(4, 2), w=nn.Parameter(torch.randn(6, 4))
        ),
        (3,),
        f"matmul {SUMMED}",
    ),
    "of two kinds of channels": (
        lambda: Net(
            lambda n, x: n.b(n.a(x).flatten(2) @ n.c(x).flatten(2).transpose(1, 2)),
            **{"a": conv(3, 6), "c": conv(3, 5), "b": nn.Linear(5, 2)},
        ),
        (3, 4, 5),
        "matmul mixes channels",
    ),
    "einsum over channels": (
        lambda: product(lambda n, x: n.b(torch.einsum("nchw,nchv->nhwv", n.a(x), n.c(x)).flatten(2)[..., :20])),
        (3, 4, 5),
        f"einsum {SUMMED}",
    ),
    "einsum without its result": (
        lambda: product(
            lambda n, x: n.b(torch.einsum("nchw,wv", n.a(x), x[0, 0, :1].expand(5, 5)).reshape(6, -1)[:, :20])
        ),
        (3, 4, 5),
        "einsum of this form has no channel rule",
    ),
    "a vector": (
        lambda: Net(lambda n, x: n.a(x) @ n.w, a=nn.Linear(3, 6), w=nn.Parameter(torch.randn(6))),
        (3,),
        "matmul of a vector has no channel rule",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_summed_over_stays(name: str) -> None:
    check_refused(*REFUSED[name])
