"""What rules write into a propagation: axes, frozen identities, reasons with the line they come from."""

from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from rbprune.graph.markers import size_in_python
from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind, Reason


@pytest.fixture
def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.BatchNorm1d(3)), nn.Linear(3, 2))


def node_of(op: str, target: object, result: object = None) -> fx.Node:
    graph = fx.Graph()
    node = graph.create_node(op, target, (graph.placeholder("x"),))  # type: ignore[arg-type]
    info(node).result, info(node).source_line = result, "net.py:7"
    return node


def test_refusing_freezes_inputs_result_and_tensors(model: nn.Module) -> None:
    propagation = Propagation(model)
    x = propagation.ids.fresh(3).expand(2, 3)
    node = node_of("call_module", "1.0", (torch.empty(2, 3, device="meta"), 5))
    result, number = propagation.refuse(node, [x], "mixes channels", Kind.MIXES_CHANNELS)
    wanted = Reason(Kind.MIXES_CHANNELS, "'1.0' (BatchNorm1d) mixes channels", "net.py:7")
    assert result.shape == (2, 3)
    assert not result.any()
    assert number == 5
    assert set(propagation.ids.reasons().values()) == {wanted}
    assert not propagation.ids.components()[x].any()
    norm = model[1][0]
    assert {propagation.uncuttable[id(t)] for t in (norm.weight, norm.bias, norm.running_mean)} == {wanted}
    assert id(model[0].weight) not in propagation.uncuttable


def test_an_axis_that_is_met_twice_is_one_axis(model: nn.Module) -> None:
    propagation = Propagation(model)
    first, second = propagation.ids.fresh(3), propagation.ids.fresh(3)
    assert propagation.axis("0", "out", first, (("0.weight", 0),)) is first
    assert propagation.axis("0", "out", second) is first
    assert propagation.axes["0", "out"].tensors == (("0.weight", 0),)
    assert torch.equal(propagation.ids.components()[second], first)


def test_what_the_user_keeps_is_kept_with_all_that_is_inside(model: nn.Module) -> None:
    propagation = Propagation(model, keep=("1",))
    assert propagation.kept("0") is None
    assert propagation.kept("1.0") == Reason(Kind.KEPT_BY_USER, "'1.0' is kept by keep=['1']")
    assert propagation.kept("1.0.weight") is not None
    assert Propagation(model).kept("1.0") is None


def test_operations_are_named_as_in_the_source(model: nn.Module) -> None:
    propagation = Propagation(model)
    assert propagation.describe(node_of("call_module", "0")) == "'0' (Linear)"
    assert propagation.describe(node_of("call_method", "flatten")) == "flatten"
    assert propagation.describe(node_of("call_function", torch.relu)) == "relu"
    assert propagation.describe(node_of("call_function", size_in_python)) == "Python code"
