"""Everyday scores of channels: the smaller, the sooner a channel goes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def l1(weight: Tensor, dim: int = 0) -> Tensor:
    """Sum of |W| per filter, or per slice along another dimension.

    >>> l1(torch.tensor([[1.0, -2.0], [0.0, 0.5]]))
    tensor([3.0000, 0.5000])
    """
    return weight.abs().movedim(dim, 0).flatten(1).sum(1)


def group_norm(tensors: Sequence[Tensor], dims: Sequence[int]) -> Tensor:
    """Euclidean norm of everything that goes with a channel: slice c of each tensor along its own dimension.

    >>> group_norm([torch.tensor([[3.0], [0.0]]), torch.tensor([[4.0, 1.0]])], [0, 1])
    tensor([5., 1.])
    """
    slices = [t.movedim(dim, 0).reshape(t.shape[dim], -1) for t, dim in zip(tensors, dims, strict=True)]
    return torch.linalg.vector_norm(torch.cat(slices, dim=1), dim=1)


def l2(weight: Tensor, dim: int = 0) -> Tensor:
    """Euclidean norm per filter.

    >>> l2(torch.tensor([[3.0, -4.0], [0.0, 0.5]]))
    tensor([5.0000, 0.5000])
    """
    return group_norm([weight], [dim])


def bn_scale(gamma: Tensor) -> Tensor:
    """|gamma| of batch normalisation (slimming).

    >>> bn_scale(torch.tensor([-0.5, 0.1]))
    tensor([0.5000, 0.1000])
    """
    return gamma.abs()


def taylor(activation: Tensor, gradient: Tensor) -> Tensor:
    """First-order change of the cost C without a channel: |mean over places of z dC/dz|, averaged over examples.

    Both are N x C x places. Averages over batches before ``normalised``. A cost that is a mean over the batch scales
    all gradients alike, which ``normalised`` takes out.

    >>> taylor(torch.ones(2, 1, 2), torch.tensor([[[1.0, 3.0]], [[-1.0, 1.0]]]))
    tensor([1.])
    """
    product = activation * gradient
    return product.reshape(*product.shape[:2], -1).mean(-1).abs().mean(0)


def normalised(score: Tensor) -> Tensor:
    """Scores of one layer over their Euclidean norm, so that layers can be compared; all zero stays all zero.

    >>> normalised(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    norm = torch.linalg.vector_norm(score)
    return score / torch.where(norm > 0, norm, 1)
