"""Structured Bayesian Pruning and Bayesian model reduction."""

from __future__ import annotations

import pytest
from torch import nn

from rbprune.errors import ConfigError
from tests.networks import pruner, tiny_cnn


def test_precision_of_bmrs_has_bounds_and_a_layer_of_zeros_has_a_ranking() -> None:
    for bits in (0.0, 29.0):
        with pytest.raises(ConfigError, match="prune.options.bits is a precision above 0 and up to 28 bits"):
            pruner("bmrs", tiny_cnn(), options={"bits": bits}).stage(0)
    pruner("bmrs", tiny_cnn(), options={"bits": 28.0}).stage(0).judge()
    model = tiny_cnn()
    nn.init.zeros_(model[0].weight)  # type: ignore[arg-type]
    values = pruner("l1", model, macs_ratio=2.0).stage(0).judge()["0"].value
    assert bool(values.isfinite().all())
