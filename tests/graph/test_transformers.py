"""Networks of transformers, which collect their hidden states by hooks that they register in their first call."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rbprune import trace
from rbprune.utils.torchvision import import_torchvision
from tests.networks import check_cut, random_drop, scramble

pytest.importorskip("transformers")


class Logits(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x).logits


@pytest.mark.parametrize("called", [False, True], ids=["new", "called before"])
def test_hidden_states_that_hooks_collect_are_followed(called: bool) -> None:
    import_torchvision()
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    torch.manual_seed(0)
    small = {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 40, 64], "decoder_hidden_size": 24}
    model = scramble(Logits(SegformerForSemanticSegmentation(SegformerConfig(num_labels=3, **small)))).eval()
    x = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    if called:
        model(x)
        assert any(module._forward_hooks for module in model.modules())
    graph = trace(model, x)
    assert len(graph.sites) == 9
    assert any(module._forward_hooks for module in model.modules()) == called, "the trace leaves none"
    check_cut(graph, random_drop(graph), x)
