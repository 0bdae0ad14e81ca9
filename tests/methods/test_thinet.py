"""ThiNet against a search over all pairs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune.methods.thinet import ThiNetStage
from tests.networks import pruner, stripes, tiny_cnn


def contributions(model: nn.Sequential, images: Tensor) -> tuple[Tensor, Tensor]:
    """For the linear layer 8 of ``tiny_cnn``: what each of its 12 input channels adds to each output."""
    x = model[:8](images).double()
    weight = model[8].weight.detach().double()
    return torch.einsum("ncp,fcp->nfc", x.view(len(x), 12, 16), weight.view(-1, 12, 16)), x


def test_thinet_removes_what_a_search_over_all_pairs_cannot_beat_by_much() -> None:
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn().eval(), stripes(64)
    found = pruner("thinet", model, macs_ratio=1.12, only=["4"])
    stage = found.stage(0)
    assert isinstance(stage, ThiNetStage)
    stage.count = 2
    stage.observe([(images, labels)] * 20, F.cross_entropy)
    (verdict,) = stage.judge().values()
    parts = contributions(model, images)[0].flatten(0, 1)
    costs = {(i, j): float((parts[:, i] + parts[:, j]).square().sum().detach()) for i in range(12) for j in range(i)}
    chosen = tuple(sorted(verdict.redundant.nonzero().flatten().tolist(), reverse=True))
    assert costs[chosen] <= 1.5 * min(costs.values())
    assert 0 < stage.notes["4"] < 1
