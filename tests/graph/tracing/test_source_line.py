"""The line of the model's source: of an operation, of an error, and never one of torch's or of ours."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor, nn

from rbprune import trace
from rbprune.graph.tracing.source_line import current_source_line, error_source_line
from tests.graph.operations import conv


class Sorting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = conv(3, 6), conv(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        y = torch.sort(y, 1)[0]
        return self.b(y)


def test_the_reason_names_the_line_of_the_operation() -> None:
    lines, start = inspect.getsourcelines(Sorting)
    line = start + next(number for number, text in enumerate(lines) if "torch.sort" in text)
    assert trace(Sorting(), torch.zeros(2, 3, 5, 5)).frozen["a"].place == f"{__file__}:{line}"


def test_an_operation_of_a_library_has_the_line_that_calls_it() -> None:
    model = nn.Sequential(conv(3, 6), nn.GroupNorm(1, 6), conv(6, 2))
    assert trace(model, torch.zeros(2, 3, 5, 5)).frozen["0"].place is None, "nn.Sequential is torch's own"


def test_the_line_now_is_that_of_the_caller() -> None:
    frame = inspect.currentframe()
    assert frame is not None
    line = frame.f_lineno + 1
    assert current_source_line() == f"{__file__}:{line}"


def test_the_line_of_an_error_is_the_innermost_of_the_users_own() -> None:
    try:
        nn.Linear(2, 3)(torch.zeros(4))
    except RuntimeError as error:
        assert error_source_line(error).startswith(f" ({__file__}:")
    assert error_source_line(ValueError("raised nowhere")) == ""
