"""How much a trained network explains: the nats per example that its outputs tell beyond what is always true.

A price and a limit in nats mean something only against what there is to lose. It is the mutual information between an
example and the prediction, I = H(E p) - E H(p): log(classes) for a network that is sure of classes that are equally
frequent, and next to nothing for one that has hardly been trained. No targets are needed where the loss is one of
probabilities or errors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from rbprune.bayes.likelihood import Bernoulli, Likelihood, Location, Softmax


def explained_nats(likelihood: Likelihood, outputs: Any, targets: Any = None) -> float | None:
    """Nats per example that the outputs of one or several batches explain, in the unit of the mean loss.

    - Scores of classes: H(mean p) - mean H(p), over examples and positions.
    - Scores of yes and no: the same of each output, their mean.
    - Errors: M / 2 log(1 + V F), the capacity of a Gaussian channel, for M outputs of variance V between examples and
      Fisher information F (1 / sigma^2 for squares).
    - Any other loss: that of the mean output of all examples less that of the outputs; None without targets.

    >>> sure = 50 * torch.eye(4)
    >>> round(explained_nats(Softmax(), sure) / torch.log(torch.tensor(4.0)).item(), 6)
    1.0
    """
    if isinstance(likelihood, Softmax):
        return _information(outputs.detach().double().softmax(1).transpose(0, 1).flatten(1).T)
    if isinstance(likelihood, Bernoulli):
        chance = outputs.detach().double().sigmoid().flatten(1)
        return sum(_information(torch.stack([p, 1 - p], 1)) for p in chance.T) / chance.shape[1]
    if isinstance(likelihood, Location):
        return _capacity(likelihood, outputs, targets)
    if targets is None:
        return None
    constant = tree_map_only(Tensor, _mean_example, outputs)
    gain = likelihood.loss_fn(constant, targets) - likelihood.loss_fn(outputs, targets)
    return max(0.0, float(gain.detach()))


def _information(chances: Tensor) -> float:
    """H(E p) - E H(p) for the rows p."""
    return float(_entropy(chances.mean(0)) - _entropy(chances).mean())


def _entropy(chances: Tensor) -> Tensor:
    return -torch.xlogy(chances, chances).sum(-1)


def _capacity(likelihood: Location, outputs: Tensor, targets: Any) -> float | None:
    if not likelihood.is_measured:
        if targets is None:
            return None
        likelihood.measure(outputs, targets)
    flat = outputs.detach().double().flatten(1)
    signal = flat.var(0, correction=0).mean() * likelihood.information
    return float(flat.shape[1] / 2 * torch.log1p(signal))


def _mean_example(output: Tensor) -> Tensor:
    output = output.detach()
    return output.mean(0, keepdim=True).expand_as(output) if output.is_floating_point() else output
