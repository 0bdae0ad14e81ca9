"""How rates are found, where nobody said so, and options that no method has."""

from __future__ import annotations

import pytest
import torch.nn.functional as F
from torch import Tensor

from rbprune.bayes.likelihood import likelihood_of
from rbprune.errors import ConfigError
from rbprune.methods.decide_rates import decide_rates
from rbprune.methods.registry import find_method
from rbprune.methods.settings import ADAM_RATE, FIXED_POINT_STEP, PruningSettings


def own_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).pow(4).mean()


def test_the_fixed_point_is_taken_where_the_loss_has_a_curvature() -> None:
    rbp, softmax = find_method("rbp"), likelihood_of(F.cross_entropy)
    found = decide_rates(PruningSettings(), rbp, 10, softmax)
    assert (found.rates, found.rate_lr) == ("fixed-point", FIXED_POINT_STEP)
    for method, classes, likelihood, noise in (
        ("l1", 10, softmax, None),
        ("rbp", None, None, None),
        ("rbp", 10, softmax, "batch"),
    ):
        found = decide_rates(PruningSettings(noise=noise), find_method(method), classes, likelihood)
        assert (found.rates, found.rate_lr) == ("adam", ADAM_RATE)
    found = decide_rates(PruningSettings(), rbp, 10, likelihood_of(own_loss))
    assert (found.rates, found.rate_lr) == ("auto", None), "only a stage can find out"
    assert decide_rates(PruningSettings(rates="adam"), rbp, 10, softmax).rates == "adam"


def test_an_unknown_option_is_refused_by_name() -> None:
    find_method("dds").check_options({"gamma": 1.0})
    with pytest.raises(ConfigError, match=r"gama.*did you mean .gamma.*it has: gamma"):
        find_method("dds").check_options({"gama": 1.0})
    with pytest.raises(ConfigError, match="it has none"):
        find_method("l1").check_options({"gamma": 1.0})
