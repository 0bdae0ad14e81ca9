"""What a run of a forward tells of it: operations in order, on what, from where."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rbprune.graph.tracing.event import Event, Made
from rbprune.graph.tracing.forward_events import ForwardEvents, NotFollowedError
from rbprune.graph.tracing.module_widths import WidthReads


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Any:
        y = x * self.scale
        y += 1
        a, b = y.chunk(2, 1)
        return 1 - a, b[:, :1]


def events_of(model: nn.Module, x: Tensor) -> ForwardEvents:
    run = ForwardEvents(model, WidthReads())
    given = run.take_input(0, x)
    with run:
        run.describe(model.forward(given))
    return run


def test_operations_are_told_in_order_with_what_they_read_and_where_they_stand() -> None:
    run = events_of(Scaled(), torch.zeros(2, 4))
    told = [(event.op, event.target, event.args) for event in run.events]
    assert told == [
        ("placeholder", "input_0", ()),
        ("get_attr", "scale", ()),
        ("call_method", "mul", (Made(0), Made(1))),
        ("call_method", "add_", (Made(2), 1)),
        ("call_method", "chunk", (Made(3), 2, 1)),
        ("call_function", operator.getitem, (Made(4), 0)),
        ("call_function", operator.sub, (1, Made(5))),
        ("call_function", operator.getitem, (Made(4), 1)),
        ("call_function", operator.getitem, (Made(7), (slice(None, None, None), slice(None, 1, None)))),
    ]
    assert all("test_forward_events.py:" in str(event.line) for event in run.events if event.op == "call_method")
    assert [event.result.shape for event in run.events if event.target == "mul"] == [(2, 4)]


def test_a_layer_is_one_event_and_what_runs_inside_is_noted() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    run = ForwardEvents(layer, WidthReads())
    given = run.take_input(0, torch.zeros(1, 3, 8))
    inner = layer.linear1.forward
    vars(layer.linear1)["forward"] = lambda x: run.call_leaf("linear1", layer.linear1, inner, None, (x,), {})
    with run:
        result = run.call_leaf("layer", layer, layer.forward, None, (given,), {})
    assert [(event.op, event.target) for event in run.events] == [("placeholder", "input_0"), ("call_module", "layer")]
    assert result.is_meta and result.shape == (1, 3, 8)
    assert [(module, tuple(shape)) for module, shape in run.events[1].layers_inside] == [(layer.linear1, (1, 3, 16))]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x.size(0),
        lambda x: x.shape,
        lambda x: x.device,
        lambda x: x.is_contiguous(),
        lambda x: x.data,
        lambda x: x.detach().numpy(),
        lambda x: bool(x.sum()),
        lambda x: len(x),
        lambda x: x + torch.ones(4),
        lambda x: torch.add(x, 1, out=x),
        lambda x: x.unsqueeze_(0),
        lambda x: torch._foreach_add_([x], 1),
    ],
)
def test_what_would_not_be_told_in_full_ends_the_run(wrong: Any) -> None:
    run = ForwardEvents(nn.Identity(), WidthReads())
    given = run.take_input(0, torch.zeros(2, 4))
    with run, pytest.raises((NotFollowedError, TypeError)):
        wrong(given)
    assert run.refused  # also where a forward catches the error


@pytest.mark.parametrize("question", ["dim", "is_floating_point", "is_complex", "ndim", "dtype", "layout"])
def test_questions_that_no_cut_and_no_device_answers_otherwise_may_be_asked(question: str) -> None:
    x = torch.zeros(2, 4)
    run = ForwardEvents(nn.Identity(), WidthReads())
    given = run.take_input(0, x)
    with run:
        answer = getattr(given, question)
        answer = answer() if callable(answer) else answer
    expected = getattr(x, question)
    assert answer == (expected() if callable(expected) else expected)
    assert len(run.events) == 1 and not run.refused


def test_events_differ_by_operation_arguments_place_and_shape_but_not_by_being_told_to_train() -> None:
    x = torch.empty(2, device="meta")
    event = Event("call_function", torch.dropout, (Made(0),), {"training": True}, ("",), result=x)
    same = Event("call_function", torch.dropout, (Made(0),), {"training": False}, ("",), "elsewhere:1", x)
    assert event.does_the_same(same)
    for change in (
        {"target": torch.relu},
        {"args": (Made(1),)},
        {"args": (0,)},
        {"kwargs": {"p": 0.1}},
        {"modules": ("", "block")},
        {"result": torch.empty(3, device="meta")},
    ):
        values = {name: getattr(event, name) for name in ("op", "target", "args", "kwargs", "modules", "result")}
        assert not event.does_the_same(Event(**(values | change)))
