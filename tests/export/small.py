"""A small pruned network with examples, as exports take it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rbprune import trace
from rbprune.export.network import PrunedNetwork
from rbprune.export.samples import Samples
from tests.networks import learn_stripes, stripes, tiny_cnn


def small_network(learnt: bool = True) -> PrunedNetwork:
    """A network that tells stripes apart, without half of its channels."""
    torch.manual_seed(0)
    model = tiny_cnn()
    if learnt:
        learn_stripes(model)
    graph = trace(model, torch.zeros(2, 1, 8, 8))
    plan = graph.remove({site.name: range(site.channels // 2, site.channels) for site in graph.sites})
    if learnt:
        learn_stripes(model)
    return PrunedNetwork(model.train(), plan, "tests.networks:tiny_cnn", 3, (1, 8, 8), {"metric": "error"})


def small_samples(**changes: Any) -> Samples:
    """Images of stripes for the check, the calibration and the validation."""
    given: dict[str, Any] = {
        "inputs": stripes(8, seed=1)[0],
        "origin": "stripes",
        "calibration": lambda: [stripes(64, seed=2)[0]] * 2,
        "held_out": lambda: [stripes(50, seed=3), stripes(30, seed=4)],
    }
    return Samples(**{**given, **changes})


class Named(nn.Module):
    """Two inputs by name, two outputs by name, one of them under the name of an input."""

    def forward(self, image: torch.Tensor, *, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"out": image * mask, "image": image + 1}
