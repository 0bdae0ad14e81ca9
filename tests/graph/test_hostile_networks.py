"""Networks that lead a trace astray are followed as they run, or refused by name: never cut wrongly."""

from __future__ import annotations

import pytest

from rbprune import trace
from rbprune.errors import UnprunableError
from tests.graph.hostile import check_exact, image, same, snapshot
from tests.graph.hostile_networks import NETWORKS
from tests.networks import scramble


@pytest.mark.parametrize("name", NETWORKS)
def test_never_wrong(name: str) -> None:
    case = NETWORKS[name]
    model = scramble(case.make())
    inputs = image(*case.shape)
    before = snapshot(model)
    if case.refused:
        with pytest.raises(UnprunableError, match=case.refused):
            trace(model, inputs)
        assert same(before, snapshot(model))
        return
    if case.sites:
        graph = check_exact(model, inputs, sites=case.sites)
    else:
        graph = trace(model, inputs)
        assert graph.sites == []
    for layer, reason in case.frozen.items():
        assert reason in str(graph.frozen[layer])
