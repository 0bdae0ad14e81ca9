"""The everyday baselines: their scores against independent computations."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from rbprune.errors import UnprunableError
from rbprune.methods.ranking import Taylor
from tests.networks import pruner, stripes, tiny_cnn


def test_taylor_is_the_mean_over_examples_of_the_absolute_change() -> None:
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn().eval(), stripes(16)
    stage = pruner("taylor", model, macs_ratio=2.0, only=["0"]).stage(0)
    assert isinstance(stage, Taylor)
    stage.observe([(images, labels)], F.cross_entropy)
    by_hand = torch.zeros(16, 6)
    for i in range(16):
        z = model[:4](images[i : i + 1]).detach().requires_grad_(True)
        F.cross_entropy(model[4:](z), labels[i : i + 1]).backward()
        assert z.grad is not None
        by_hand[i] = (z * z.grad).sum((2, 3))[0].abs().detach()
    score = by_hand.mean(0)
    torch.testing.assert_close(stage.score(stage.sites[0]), score / score.norm(), rtol=1e-4, atol=1e-6)


def test_slimming_says_which_site_has_no_normalisation() -> None:
    with pytest.raises(UnprunableError, match=r"slimming ranks by batch normalisation, and site '8' has none"):
        pruner("slimming", tiny_cnn(), macs_ratio=2.0).stage(0).penalty()


def test_random_draws_by_the_seed() -> None:
    chosen = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        chosen.append(pruner("random", tiny_cnn(), macs_ratio=2.0).stage(0).judge()["0"].value.tolist())
    assert chosen[0] == chosen[1] != chosen[2]
