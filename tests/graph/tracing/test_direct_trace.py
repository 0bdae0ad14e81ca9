"""A graph from how a forward runs is that of fx, and there is none where the run would not tell all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

import rbprune
from rbprune import trace
from rbprune.errors import ModelError
from rbprune.graph.channel_graph import ChannelGraph
from rbprune.graph.propagation import Propagation
from rbprune.graph.rules import registry
from rbprune.graph.rules.elementwise import channelwise
from rbprune.graph.tracing import trace as trace_module
from rbprune.graph.tracing.direct_trace import direct_trace
from rbprune.graph.tracing.module_widths import WidthReads
from rbprune.utils.inputs import arguments
from tests.graph.hostile import check_exact, image, same, snapshot
from tests.graph.operations import Net, conv
from tests.networks import scramble


def direct(model: nn.Module, *inputs: Any) -> fx.Graph | None:
    """The graph from a run; the model must stay as it was."""
    before = snapshot(model)
    graph = direct_trace(Propagation(model), arguments(inputs or (torch.zeros(2, 3, 8, 8),)), WidthReads())
    assert same(before, snapshot(model))
    return graph


def picture(graph: ChannelGraph) -> Any:
    """All that a trace finds out."""
    sites = [
        (s.name, s.residual, s.block, s.downsample, sorted((p.owner, p.role, p.positions.tolist()) for p in s.parts))
        for s in graph.sites
    ]
    branches = {name: (branch.output, branch.choices) for name, branch in graph.branches.items()}
    return sites, graph.frozen, branches, graph.frozen_branches, graph.layers()


def by_fx(model: nn.Module, x: Tensor) -> ChannelGraph:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_module, "direct_trace", lambda *args: None)
        return trace(model, x)


def functions(net: Net, x: Tensor) -> Tensor:
    y = F.relu(net.norm(net.a(x)), inplace=True)
    first, second = y.chunk(2, 1)
    y = torch.cat([first * second.sigmoid(), net.scale * net.b(y)], 1)
    y = 1 - F.max_pool2d(y, 2) / 2 + 2 * F.avg_pool2d(y, 2)
    return net.head(F.dropout(y.mean((2, 3)), 0.1, net.training))


def shared(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    for _ in range(2):
        y = y + net.block(y)
    return net.c(F.conv2d(y, net.weight, net.bias, padding=1))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "functions, parameters and parts": lambda: Net(
        functions,
        a=conv(3, 8),
        norm=nn.BatchNorm2d(8),
        b=conv(8, 6),
        scale=nn.Parameter(torch.randn(6, 1, 1)),
        head=nn.Linear(10, 2),
    ),
    "a block twice, and a weight of its own": lambda: Net(
        shared,
        a=conv(3, 8),
        block=nn.Sequential(conv(8, 5), nn.ReLU(), conv(5, 8)),
        weight=nn.Parameter(torch.randn(7, 8, 3, 3)),
        bias=nn.Parameter(torch.randn(7)),
        c=conv(7, 2),
    ),
    **{
        name: lambda name=name: rbprune.models.build(f"torchvision:{name}")  # type: ignore[misc]
        for name in ("resnet18", "mobilenet_v3_small", "squeezenet1_1")
    },
}


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_the_graph_of_fx(name: str) -> None:
    model = NETWORKS[name]()
    x = torch.zeros(2, 3, 64, 64)
    assert direct(model, x) is not None
    assert picture(trace(model, x)) == picture(by_fx(model, x))


def test_masked_is_removed_in_a_network_of_functions() -> None:
    model = scramble(NETWORKS["functions, parameters and parts"]())
    assert check_exact(model, image(), sites={"a": 4, "b": 6}).sites[0].consumers == ["b", "head"]


def two_results(net: Net, x: Tensor) -> Any:
    y = net.a(x)
    return {"first": net.b(y), "second": [net.c(y), y.dim()]}


def test_outputs_may_be_in_lists_and_dicts() -> None:
    model = scramble(Net(two_results, a=conv(3, 6), b=conv(6, 2), c=conv(6, 2)))
    assert direct(model, image()) is not None
    check_exact(model, image(), sites={"a": 6})


def test_flags_among_the_inputs_are_what_they_are() -> None:
    class Flagged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = conv(3, 6), conv(6, 2)

        def forward(self, x: Tensor, turn: bool = False) -> Tensor:
            y = self.a(x)
            return self.b(y.flip(1) if turn else y)

    model, x = Flagged(), torch.zeros(2, 3, 8, 8)
    assert direct(model, x, True) is not None
    assert [len(trace(model, (x, turn)).sites) for turn in (False, True)] == [1, 0]


def keeps_a_tensor(net: Net, x: Tensor) -> Tensor:
    return net.b(net.a(x) * net.plain)


UNTOLD: dict[str, Callable[[Net, Tensor], Any]] = {
    "sizes": lambda n, x: n.b(n.a(x).view(n.a(x).shape)),
    "the device": lambda n, x: n.b(n.a(x).to(x.device)),
    "values": lambda n, x: n.b(n.a(x)) if x.sum() > -1 else x,
    "another network in training": lambda n, x: n.b(n.a(x)) if n.training else n.b(n.a(x).flip(1)),
    "a tensor that the forward makes": lambda n, x: n.b(n.a(x) + torch.ones(6, 8, 8)),
    "a tensor that is no buffer": keeps_a_tensor,
    "a write into a parameter": lambda n, x: n.b(n.a(x)) + n.b.bias.mul_(2).sum(),
    "numbers of the results": lambda n, x: (n.b(n.a(x)), n.a(x).numpy),
    "an error that is caught": lambda n, x: n.b(n.a(x) * _size_or(n.a(x), 2)),
    "another shape in place": lambda n, x: n.b(n.a(x).unsqueeze_(0).squeeze(0)),
}


def _size_or(x: Tensor, otherwise: int) -> int:
    try:
        return x.size(0)
    except Exception:
        return otherwise


@pytest.mark.parametrize("name", UNTOLD)
def test_there_is_none_where_a_run_would_not_tell_all(name: str) -> None:
    model = Net(UNTOLD[name], a=conv(3, 6), b=conv(6, 2))
    model.plain = torch.rand(6, 1, 1)
    assert direct(model) is None


def written_through_dropout(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    return net.b(y + net.act(net.drop(y)))  # in evaluation the activation in place writes into y as well


def test_there_is_none_where_only_one_mode_writes_into_what_is_used_again() -> None:
    options = {"a": conv(3, 6), "b": conv(6, 2), "drop": nn.Dropout(0.5)}
    assert direct(Net(written_through_dropout, act=nn.ReLU(inplace=True), **options)) is None


def test_there_is_none_with_hooks_or_compiled_parts() -> None:
    model = nn.Sequential(conv(3, 6), nn.ReLU(), conv(6, 2))
    assert direct(model) is not None
    for place in (model, model[1]):
        for register in (place.register_forward_hook, place.register_forward_pre_hook):
            handle = register(lambda *args: None)
            assert direct(model) is None
            handle.remove()
    handle = nn.modules.module.register_module_forward_hook(lambda *args: None)
    assert direct(model) is None
    handle.remove()
    assert direct(nn.Sequential(torch.jit.script(nn.ReLU()), conv(3, 2))) is None
    with torch.autocast("cpu"):
        assert direct(model) is None
    assert direct(model) is not None


def test_there_is_none_where_a_function_of_the_users_has_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(conv(3, 6), conv(6, 2))
    monkeypatch.setattr(registry, "_taught", {torch.special.expit: channelwise})
    assert direct(model) is not None
    monkeypatch.setattr(registry, "_taught", {_size_or: channelwise})
    assert direct(model) is None


def test_an_input_that_does_not_fit_is_told_as_ever() -> None:
    model = nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), conv(6, 2))
    assert direct(model, torch.zeros(2, 4, 8, 8)) is None
    with pytest.raises(ModelError, match="forward fails on the example inputs"):
        trace(model, torch.zeros(2, 4, 8, 8))
