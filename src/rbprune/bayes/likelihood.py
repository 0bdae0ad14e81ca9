"""Losses as likelihoods: the curvature that a mean loss has in a network's outputs, in nats for each example.

For a loss that is the mean negative log-likelihood of B examples, the Gauss-Newton curvature in anything before the
outputs z needs R_i = B d^2 loss / dz_i^2 for each example i, in its Fisher form. A random v_i of covariance R_i is
enough: with J_i = dz_i / dtheta the mean of (J_i^T v_i)^2 over examples and draws is the diagonal of the curvature of
the loss in theta. Each class here draws such v for one family of losses; ``SecondDerivative`` works for any loss that
can be differentiated, with a pair (xi, R xi) in place of v.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

IGNORED = -100
"""The class of positions that torch's cross-entropy leaves out by default."""


@dataclass(frozen=True)
class Softmax:
    """Cross-entropy of class scores in dimension 1, for any number of positions behind it.

    R = c (diag p - p p^T) at each position, p = softmax(z), where c is what the position counts in the mean: class
    weights, label smoothing, soft targets and ignored positions change c and nothing else.
    """

    weight: Tensor | None = None
    ignore_index: int = IGNORED
    label_smoothing: float = 0.0

    def direction(self, outputs: Tensor, targets: Tensor | None) -> Tensor:
        """v = sqrt(B c) (sqrt(p) xi - p (sqrt(p) . xi)), xi ~ N(0, 1); without targets all positions count alike."""
        root = outputs.detach().float().softmax(1).sqrt()
        xi = torch.randn_like(root)
        direction = root * xi - root.square() * (root * xi).sum(1, keepdim=True)
        if targets is None and outputs.dim() == 2:
            return direction
        counts = len(outputs) * self._counts(outputs, targets)
        return direction * counts.sqrt().unsqueeze(1)

    def divisor(self, targets: Any) -> Tensor | None:
        """What the mean over these targets is divided by: the weights of the labels that are not ignored; None where it
        is their number alone, as for probabilities of classes."""
        if not isinstance(targets, Tensor) or targets.is_floating_point() or targets.is_complex():
            return None
        seen = targets != self.ignore_index
        return seen.sum() if self.weight is None else (self.weight.float()[targets.where(seen, 0).long()] * seen).sum()

    def _counts(self, outputs: Tensor, targets: Tensor | None) -> Tensor:
        """c of each position: [examples, *positions]."""
        classes, positions = outputs.shape[1], outputs[:, 0].numel()
        if targets is None:
            return outputs.new_full(outputs[:, 0].shape, 1 / positions, dtype=torch.float32)
        weight = outputs.new_ones(classes, dtype=torch.float32) if self.weight is None else self.weight.float()
        smooth, even = self.label_smoothing, self.label_smoothing * weight.mean()
        if targets.is_floating_point():  # probabilities of all classes, in dimension 1
            spread = weight.view(-1, *[1] * (outputs.dim() - 2))
            return ((1 - smooth) * (targets.float() * spread).sum(1) + even) / positions
        seen = targets != self.ignore_index
        own = weight[targets.where(seen, 0).long()] * seen
        return ((1 - smooth) * own + even * seen) / own.sum().clamp_min(torch.finfo(own.dtype).tiny)


@dataclass(frozen=True)
class Bernoulli:
    """Binary cross-entropy of scores: R = w (p+ t + 1 - t) s (1 - s) / number of outputs, s = sigmoid(z)."""

    weight: Tensor | None = None
    pos_weight: Tensor | None = None

    def direction(self, outputs: Tensor, targets: Tensor | None) -> Tensor:
        """v = sqrt(B R) xi with xi ~ N(0, 1)."""
        chance = outputs.detach().float().sigmoid()
        curvature = chance * (1 - chance) * len(outputs) / outputs.numel()
        if self.pos_weight is not None and targets is not None:
            curvature = curvature * (self.pos_weight * targets + 1 - targets)
        if self.weight is not None:
            curvature = curvature * self.weight
        return curvature.sqrt() * torch.randn_like(chance)


class Location:
    """Errors z - y of any shape: squared, absolute, Huber. The data itself says how many nats they are worth.

    The density exp(-rho(e) / s) of an error e makes a loss of mean rho(e) a likelihood. Whatever rho, integration by
    parts gives s = E[e rho'(e)] (2 sigma^2 for the squared error, the mean |e| for the absolute one), so s is measured
    on the trained network, once, and the Fisher information of an output is E[rho'(e)^2] / s^2.
    """

    PASSES = 10
    """Batches of the beginning that s is measured on, where nobody has measured it before."""

    def __init__(self, loss_fn: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.loss_fn = loss_fn
        self.sums = torch.zeros(3, dtype=torch.float64)
        """Batches, and the sums over them of the means of e rho'(e) and rho'(e)^2."""
        self.is_measured = False
        """Whether the scale is known; until then every batch with targets is taken in, up to ``PASSES``."""

    def measure(self, outputs: Tensor, targets: Tensor) -> None:
        """Take a batch of the trained network into the scale."""
        z = outputs.detach().float().requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(self.loss_fn(z, targets), z)
        slope = gradient.double() * z.numel()  # the loss is a mean over all outputs
        error = z.detach().double() - targets.double().expand_as(z)
        self.sums += torch.stack([torch.ones(()).double(), (error * slope).mean().cpu(), slope.square().mean().cpu()])

    @property
    def scale(self) -> float:
        """s: what the loss of an output must be divided by to be in nats."""
        return float(self.sums[1] / self.sums[0])

    @property
    def information(self) -> float:
        """The Fisher information of one output."""
        return float(self.sums[2] / self.sums[0]) / self.scale**2

    def direction(self, outputs: Tensor, targets: Tensor | None) -> Tensor:
        """v = sqrt(information) xi with xi ~ N(0, 1)."""
        if targets is not None and not self.is_measured:
            self.measure(outputs, targets)
            self.is_measured = float(self.sums[0]) >= self.PASSES
        return self.information**0.5 * torch.randn_like(outputs.detach().float())

    def loss_per_nat(self, outputs: Tensor) -> float:
        """What one nat for each example is in units of the loss, which is a mean over outputs too."""
        return self.scale * len(outputs) / outputs.numel()


class SecondDerivative:
    """Any loss that is a mean negative log-likelihood over examples, by its own second derivative in the outputs."""

    def __init__(self, loss_fn: Callable[[Any, Any], Tensor]) -> None:
        self.loss_fn = loss_fn
        self.is_curved: bool | None = None
        """Whether the second derivative is anywhere other than 0; found out once, since it reads from the device."""

    def pair(self, outputs: Any, targets: Any, examples: int) -> tuple[list[Tensor], list[Tensor]] | None:
        """xi of random signs and B R xi, for each tensor of the outputs; None where the loss has no curvature.

        xi is 0 where the loss has neither slope nor curvature: outputs that it does not look at (boxes where there is
        no object, maps that are handed out beside the predictions) would add nothing but noise.
        """
        leaves, structure = tree_flatten(outputs)
        tensors = [z.detach().float().requires_grad_() for z in leaves if _differentiable(z)]

        def loss_at(values: Iterable[Tensor]) -> Tensor:
            own = iter(values)
            inner = [next(own) if _differentiable(z) else z for z in leaves]
            return self.loss_fn(tree_unflatten(inner, structure), targets)

        with torch.enable_grad():
            slopes = torch.autograd.grad(loss_at(tensors), tensors, create_graph=True, allow_unused=True)
            xi = [torch.randint_like(z, 2) * 2 - 1 for z in tensors]
            used = [
                (slope, x) for slope, x in zip(slopes, xi, strict=True) if slope is not None and slope.requires_grad
            ]
            if not used:
                return None
            product = torch.stack([(slope * x).sum() for slope, x in used]).sum()
            found: Sequence[Tensor | None]
            try:
                found = torch.autograd.grad(product, tensors, allow_unused=True)
            except RuntimeError:  # torch knows no second derivative, as of ctc_loss
                found = _difference_of_slopes(loss_at, tensors, xi)
        curved = [torch.zeros_like(z) if r is None else examples * r for r, z in zip(found, tensors, strict=True)]
        xi = [x * _looked_at(slope, r) for x, slope, r in zip(xi, slopes, curved, strict=True)]
        if self.is_curved is None:
            self.is_curved = any(bool(r.any()) for r in curved)
        return (xi, curved) if self.is_curved else None


def _difference_of_slopes(
    loss_at: Callable[[Iterable[Tensor]], Tensor], outputs: list[Tensor], xi: list[Tensor]
) -> tuple[Tensor | None, ...]:
    """R xi by the slopes a small step to either side, a hundredth of the size of the outputs."""
    mean_square = sum(float(z.detach().square().sum()) for z in outputs) / max(1, sum(z.numel() for z in outputs))
    step = 0.01 * mean_square**0.5 or 0.01

    def slopes(side: float) -> tuple[Tensor | None, ...]:
        moved = [(z.detach() + side * x).requires_grad_() for z, x in zip(outputs, xi, strict=True)]
        return torch.autograd.grad(loss_at(moved), moved, allow_unused=True)

    pairs = zip(slopes(step), slopes(-step), strict=True)
    return tuple(None if a is None or b is None else (a - b) / (2 * step) for a, b in pairs)


def _looked_at(slope: Tensor | None, curved: Tensor) -> Tensor:
    """Where a loss depends on an output."""
    return curved != 0 if slope is None else (curved != 0) | (slope.detach() != 0)


def _differentiable(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


Likelihood = Softmax | Bernoulli | Location | SecondDerivative
"""What a loss says about outputs."""

_LOCATIONS = (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss)
_LOCATION_MODULES = (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss)
_OPTIONS = ("reduction", "weight", "pos_weight", "ignore_index", "label_smoothing")
"""Settings of torch's loss modules that change what a loss says about outputs."""


def likelihood_of(loss_fn: Callable[[Any, Any], Tensor]) -> Likelihood:
    """The family of a loss of torch, as a function (also with keywords fixed by ``functools.partial``) or as a module.

    >>> likelihood_of(F.cross_entropy), type(likelihood_of(nn.MSELoss())).__name__
    (Softmax(weight=None, ignore_index=-100, label_smoothing=0.0), 'Location')
    >>> type(likelihood_of(lambda outputs, targets: outputs.square().mean())).__name__
    'SecondDerivative'
    """
    function, options = loss_fn, {}
    if isinstance(loss_fn, functools.partial) and not loss_fn.args:
        function, options = loss_fn.func, dict(loss_fn.keywords)
    elif isinstance(loss_fn, nn.Module):
        options = {name: getattr(loss_fn, name, None) for name in _OPTIONS}
        options = {name: value for name, value in options.items() if value is not None}
    if options.pop("reduction", "mean") != "mean":
        return SecondDerivative(loss_fn)
    if function is F.cross_entropy or type(function) is nn.CrossEntropyLoss:
        return Softmax(**options)
    if function is F.binary_cross_entropy_with_logits or type(function) is nn.BCEWithLogitsLoss:
        return Bernoulli(**options)
    if any(function is known for known in _LOCATIONS) or type(function) in _LOCATION_MODULES:
        return SecondDerivative(loss_fn) if "weight" in options else Location(loss_fn)
    return SecondDerivative(loss_fn)
