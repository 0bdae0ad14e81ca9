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


@pytest.mark.parametrize("method", ["l1", "uniform"])
def test_filters_are_ranked_by_their_l1_norm(method: str) -> None:
    model = tiny_cnn()
    stage = pruner(method, model, macs_ratio=1.5).stage(0)
    norms = {name: model.get_submodule(name).weight.detach().flatten(1).abs().sum(1).double() for name in stage.names}
    verdicts = stage.judge()
    for name, norm in norms.items():
        assert not bool(verdicts[name].redundant.any()), "how many go is for the target to say"
        if method == "l1":
            torch.testing.assert_close(verdicts[name].value, -norm / norm.mean(), rtol=1e-5, atol=1e-6)
        else:
            smaller = (norm.unsqueeze(0) >= norm.unsqueeze(1)).sum(1).double()
            torch.testing.assert_close(verdicts[name].value, smaller / len(norm), msg="the same shares everywhere")
    stage.abandon()


def test_slimming_pulls_the_scales_of_batch_normalisation_and_ranks_by_them() -> None:
    model = tiny_cnn()
    with torch.no_grad():
        for layer in (model[1], model[5]):
            layer.weight.normal_()  # type: ignore[operator, union-attr]
    stage = pruner("slimming", model, macs_ratio=1.5, only=["0", "4"], options={"l1": 0.25}).stage(0)
    scales = [model[1].weight.detach(), model[5].weight.detach()]  # type: ignore[operator]
    penalty = stage.kl()
    torch.testing.assert_close(penalty.detach(), 0.25 * torch.cat(scales).abs().sum())
    penalty.backward()
    torch.testing.assert_close(model[5].weight.grad, 0.25 * scales[1].sign())  # type: ignore[arg-type]
    values = [verdict.value for verdict in stage.judge().values()]
    torch.testing.assert_close(torch.cat(values), -torch.cat(scales).abs().double())
    stage.abandon()
