"""Channels chosen by how well the next layer's output can be rebuilt (ThiNet, Channel Pruning).

Column j of X holds the contribution of channel j to samples y of the next layer's output. Only sums of products are
kept, so memory does not grow with the samples: the Gram matrix G = X^T X and c = X^T y, in float64.

    ThiNet   remove T, grown greedily: min ||sum_{j in T} x_j||^2, adding j costs G_jj + 2 sum_{t in T} G_tj;
             then rescale the kept channels S by w = argmin ||y - X_S w||^2
    CP       min 1/2 b^T G b - c^T b + lambda ||b||_1, with lambda raised until few enough b_j are left
             (``lasso.select``); then refit the kept weights by least squares with an intercept
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rbprune.errors import ConfigError

CONSTANT = 1e-10
"""An input whose variance is a smaller part of its mean square is constant: what is left of it is rounding."""


@dataclass
class Moments:
    """Sums of products of X (n x p) and Y (n x q), over as many batches as one likes.

    >>> moments = Moments(1, 1)
    >>> moments.add(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]]))
    >>> moments.count, moments.gram, moments.cross
    (2, tensor([[5.]], dtype=torch.float64), tensor([[11.]], dtype=torch.float64))
    """

    inputs: int
    outputs: int
    count: int = 0
    gram: Tensor = field(init=False)
    cross: Tensor = field(init=False)
    x_sum: Tensor = field(init=False)
    y_sum: Tensor = field(init=False)

    def __post_init__(self) -> None:
        p, q = self.inputs, self.outputs
        self.gram, self.cross, self.x_sum, self.y_sum = (
            torch.zeros(shape, dtype=torch.float64) for shape in ((p, p), (p, q), (p,), (q,))
        )

    def add(self, x: Tensor, y: Tensor) -> None:
        """Add a batch of samples."""
        x, y = x.detach().double().cpu(), y.detach().double().cpu()
        self.count += len(x)
        self.gram += x.T @ x
        self.cross += x.T @ y
        self.x_sum += x.sum(0)
        self.y_sum += y.sum(0)


def greedy(gram: Tensor, count: int) -> Tensor:
    """The ``count`` channels to remove, in the order in which they go.

    >>> x = torch.tensor([[3.0, 1.0, -1.1], [0.0, 2.0, -2.0]])
    >>> greedy(x.T @ x, 2)  # the smallest first, then the one that cancels it
    tensor([1, 2])
    """
    check_count(count, len(gram))
    gram = gram.double()
    cost = gram.diagonal().clone()
    removed = torch.empty(count, dtype=torch.long)
    for i in range(count):
        removed[i] = cost.argmin()
        cost += 2 * gram[removed[i]]
        cost[removed[i]] = torch.inf
    return removed


def rescale(gram: Tensor, cross: Tensor, kept: Tensor) -> Tensor:
    """Factors w of the kept channels that minimise ||y - X_S w||; where several do, the nearest to 1.

    >>> x = torch.tensor([[1.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
    >>> rescale(x.T @ x, x.T @ torch.tensor([4.0, 6.0]), torch.tensor([0, 2]))
    tensor([3.2000, 1.0000], dtype=torch.float64)
    """
    part, ones = gram.double()[kept][:, kept], torch.ones(len(kept), dtype=torch.float64)
    return ones + solve(part, cross.double()[kept] - part @ ones)


def refit(moments: Moments, kept: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (kept x q) and intercept (q) of the least squares of Y on the kept columns of X.

    >>> moments = Moments(2, 1)
    >>> moments.add(torch.tensor([[0.0, 7.0], [1.0, 0.0], [2.0, 5.0]]), torch.tensor([[1.0], [3.0], [5.0]]))
    >>> weight, intercept = refit(moments, torch.tensor([0]))
    >>> round(float(weight), 6), round(float(intercept), 6)
    (2.0, 1.0)
    """
    if not moments.count:
        raise ConfigError("refit needs samples, but none were added to these Moments; call add first")
    x_mean, y_mean = moments.x_sum[kept] / moments.count, moments.y_sum / moments.count
    covariance = moments.gram[kept][:, kept] - moments.count * torch.outer(x_mean, x_mean)
    weight = solve(covariance, moments.cross[kept] - moments.count * torch.outer(x_mean, y_mean))
    return weight, y_mean - x_mean @ weight


def take_over(
    moments: Moments, weight: Tensor, kept: Tensor, *, ridge: float, intercept: bool
) -> tuple[Tensor, Tensor]:
    """By how much the weights of the kept inputs must change so that they give what all inputs gave.

    For a layer y = W x with filters W (q x p) it is the change D of W_S that minimises E||W_G x_G - D x_S||^2, plus
    ``ridge`` times the mean square of each kept input times its part of D: without samples nothing changes. Returns D
    as (kept x q), and what the layer's bias gains; that is 0 without ``intercept``.

    >>> moments = Moments(2, 0)
    >>> x = torch.tensor([[1.0, 2.0], [2.0, 4.0]])  # the second input is twice the first
    >>> moments.add(x, x[:, :0])
    >>> change, _ = take_over(moments, torch.tensor([[3.0, 5.0]]), torch.tensor([0]), ridge=0.0, intercept=False)
    >>> round(float(change), 6)
    10.0
    """
    if not moments.count:
        raise ConfigError("take_over needs samples, but none were added to these Moments; call add first")
    gone = torch.ones(moments.inputs, dtype=torch.bool)
    gone[kept] = False
    lost = weight.double()[:, gone].T
    gram, mean = moments.gram, moments.x_sum / moments.count
    if intercept:
        varies = gram.diagonal() - moments.count * mean.square() > CONSTANT * gram.diagonal()
        gram = (gram - moments.count * torch.outer(mean, mean)) * torch.outer(varies, varies)
    change = solve(gram[kept][:, kept], gram[kept][:, gone] @ lost, ridge)
    shift = mean[gone] @ lost - mean[kept] @ change
    return change, shift if intercept else torch.zeros_like(shift)


def solve(gram: Tensor, right: Tensor, ridge: float = 0.0) -> Tensor:
    """A least-squares solution of G w = right for a symmetric, possibly singular, G; right has one or more columns.

    Of several solutions it is the one of least norm after scaling the diagonal of G to 1. The scaling also keeps the
    cut of small eigenvalues from taking channels for noise that are merely small. A ``ridge`` is added to that diagonal
    of 1, so that there is only one solution.
    """
    diagonal = gram.diagonal().clamp(min=0)
    unit = torch.where(diagonal > 0, diagonal, 1).rsqrt()
    if ridge:
        scaled = gram * torch.outer(unit, unit) + ridge * torch.eye(len(gram), dtype=gram.dtype)
        columns = right if right.dim() > 1 else right.unsqueeze(1)
        found = torch.cholesky_solve(unit.unsqueeze(1) * columns, torch.linalg.cholesky(scaled))
        return (unit.unsqueeze(1) * found).view_as(right)
    inverse = torch.linalg.pinv(gram * torch.outer(unit, unit), rtol=len(gram) * 1e-12, hermitian=True)
    return torch.diag(unit) @ inverse @ (torch.diag(unit) @ right)


def check_count(count: int, channels: int) -> None:
    """A count of channels lies between 0 and all of them."""
    if not 0 <= count <= channels:
        raise ConfigError(f"count is {count}, but there are {channels} channels; give 0 to {channels}")
