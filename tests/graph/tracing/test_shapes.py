"""A forward that fails on the example says where."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rbprune import trace
from rbprune.errors import ModelError
from tests.networks import tiny_cnn


def test_a_forward_that_fails_says_on_what() -> None:
    with pytest.raises(ModelError, match=r"fails on the example inputs \[\(2, 3, 8, 8\)\].*pass example_inputs"):
        trace(tiny_cnn(), torch.zeros(2, 3, 8, 8))


def test_the_error_of_a_forward_that_fails_names_the_layer() -> None:
    with pytest.raises(ModelError, match=r"fails on the example inputs \[\(2, 4\)\] at '1': .*pass example_inputs"):
        trace(nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 3)), torch.zeros(2, 4))


def test_an_assertion_of_the_outermost_forward_is_told_as_the_models_own() -> None:
    class Square(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            assert x.shape[2] == x.shape[3], f"{x.shape[2]} rows, {x.shape[3]} columns: no square"
            return self.b(self.a(x))

    told = r"fails on the example inputs \[\(1, 3, 8, 9\)\] \(.*test_shapes.py:\d+\): 8 rows, 9 columns"
    with pytest.raises(ModelError, match=told):
        trace(Square(), torch.zeros(1, 3, 8, 9))
    assert [site.name for site in trace(Square(), torch.zeros(1, 3, 8, 8)).sites] == ["a"]
