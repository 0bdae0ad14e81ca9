"""The collector is off inside and afterwards as it was, whatever happens."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

from rbprune import trace
from rbprune.errors import ModelError
from rbprune.utils.garbage import collector_paused


@pytest.mark.parametrize("is_on", [True, False])
def test_it_is_afterwards_as_it_was(is_on: bool) -> None:
    try:
        (gc.enable if is_on else gc.disable)()
        with pytest.raises(ValueError, match="inside"), collector_paused():
            assert not gc.isenabled()
            raise ValueError("inside")
        assert gc.isenabled() == is_on
    finally:
        gc.enable()


def test_a_trace_leaves_it_on_also_where_it_fails() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    trace(model, torch.zeros(1, 4))
    assert gc.isenabled()
    with pytest.raises(ModelError):
        trace(model, torch.zeros(1, 5))
    assert gc.isenabled()
