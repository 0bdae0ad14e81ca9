"""Rules that the user teaches: for functions, for modules, and for layers with widths of their own."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import rbprune
from rbprune import trace
from rbprune.errors import ConfigError, ModelError
from rbprune.graph.ids import along, spread
from rbprune.graph.layer_table import Rule
from rbprune.graph.propagation import Propagation
from tests.graph.operations import Net, Refusal, check_refused, conv
from tests.networks import check_cut, random_drop


class Transposed(nn.Module):
    """A linear layer of somebody's own: the weight is stored transposed, the widths have names of their own."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(n_in, n_out))
        self.n_in, self.n_out, self.n_pairs = n_in, n_out, n_out // 2

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.n_in:
            raise ValueError(f"{x.shape[-1]} inputs, not {self.n_in}")
        pairs = (x @ self.kernel).view(-1, self.n_pairs, 2)
        return pairs.view(-1, self.n_out)


def rule(propagation: Propagation, node: fx.Node, module: Transposed, x: Tensor) -> Any:
    """Reads the last dimension and makes pairs of channels that stay together."""
    name = str(node.target)
    read = along(x, -1)
    assert read is not None
    propagation.axis(name, "in", read, ((f"{name}.kernel", 0),))
    made = propagation.axis(name, "out", propagation.ids.fresh(module.n_out), ((f"{name}.kernel", 1),))
    pairs = made.view(-1, 2)
    propagation.ids.merge(pairs, pairs[:, :1])
    return spread(made, -1, (*x.shape[:-1], module.n_out))


def network(kind: type[Transposed] = Transposed) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(kind(4, 8), nn.Tanh(), kind(8, 6), nn.Tanh(), nn.Linear(6, 2)).double()


def fresh_kind() -> type[Transposed]:
    """A class that nobody has taught anything about yet: what is taught is known to the whole process."""
    return type("Fresh", (Transposed,), {})


def test_a_taught_layer_is_cut_exactly_and_its_widths_follow() -> None:
    kind = fresh_kind()
    rbprune.register_rule(kind, rule, widths={"n_in": "in", "n_out": "out", "n_pairs": ("out",)})
    model = network(kind)
    unpruned = copy.deepcopy(model)
    x = torch.randn(5, 4, dtype=torch.float64)
    graph = trace(model, x)
    assert {site.name: site.channels for site in graph.sites} == {"0": 4, "2": 3}
    plan = check_cut(graph, random_drop(graph), x)
    left = [2 * graph["0"].channels, 2 * graph["2"].channels]
    assert left[0] < 8
    assert left[1] < 6
    for pruned in (model, rbprune.apply_plan(unpruned, rbprune.Plan.from_json(plan.to_json()))):
        first, second = pruned[0], pruned[2]
        assert (first.n_in, first.n_out, first.n_pairs) == (4, left[0], left[0] // 2)
        assert (second.n_in, second.n_out, second.n_pairs) == (left[0], left[1], left[1] // 2)
        assert torch.equal(pruned(x), model(x))


def test_the_layer_of_the_documentation_is_cut_exactly() -> None:
    page = (Path(__file__).parents[3] / "docs" / "graph.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"torch": torch, "rbprune": rbprune}
    exec(compile(block, "docs/graph.md", "exec"), names)
    model = nn.Sequential(names["Mix"](4, 8), nn.Tanh(), names["Mix"](8, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    graph = trace(model, x)
    assert {site.name: site.channels for site in graph.sites} == {"0": 8, "2": 6}
    check_cut(graph, {"0": [1, 5], "2": [0]}, x)
    assert [(layer.n_in, layer.n_out) for layer in (model[0], model[2])] == [(4, 6), (6, 5)]


def test_a_taught_width_that_the_forward_reads_stays() -> None:
    kind = fresh_kind()
    rbprune.register_rule(kind, rule, widths={"n_in": "in", "n_out": "out", "n_pairs": "out"})
    model = Net(lambda n, x: n.c(n.b(n.a(x) / n.a.n_out)), a=kind(4, 8), b=kind(8, 6), c=nn.Linear(6, 2))
    graph = trace(model, torch.zeros(2, 4))
    assert [site.name for site in graph.sites] == ["b"]
    assert "the forward reads a.n_out, which a cut would change" in str(graph.frozen["a"])


def test_a_subclass_of_a_layer_of_torch_keeps_the_widths_of_that() -> None:
    class Louder(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    from rbprune.graph.rules.layers import linear

    rbprune.register_rule(Louder, linear, widths={"halves": "out"})
    model = nn.Sequential(Louder(4, 6), nn.ReLU(), Louder(6, 2)).double()
    for layer in (model[0], model[2]):
        layer.halves = 2 * layer.out_features
    graph = trace(model, torch.zeros(2, 4, dtype=torch.float64))
    check_cut(graph, {"0": [1, 3]}, torch.randn(3, 4, dtype=torch.float64))
    assert (model[0].out_features, model[2].in_features) == (4, 4)
    assert (model[0].halves, model[2].halves) == (8, 4)


def test_widths_that_cannot_be_are_refused() -> None:
    with pytest.raises(
        ConfigError, match="'output' is no role of an axis; widths takes one of out, in, columns, along"
    ):
        rbprune.register_rule(fresh_kind(), rule, widths={"n_out": "output"})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="widths are attributes of a module class; .*leave widths out"):
        rbprune.register_rule(torch.special.sinc, rule, widths={"n_out": "out"})


def test_a_layer_without_the_width_that_its_rule_names_is_refused_before_any_cut() -> None:
    kind = fresh_kind()
    rbprune.register_rule(kind, rule, widths={"n_outputs": "out"})
    with pytest.raises(ModelError, match=r"'0' \(Fresh\) has n_outputs = None, but its rule names that as a width"):
        trace(network(kind), torch.zeros(2, 4, dtype=torch.float64))


def test_a_rule_can_be_taught() -> None:
    from rbprune.graph.rules.elementwise import channelwise

    model = Net(lambda n, x: n.b(torch.special.sinc(n.a(x))), a=conv(3, 6), b=conv(6, 2))
    assert trace(model, torch.zeros(2, 3, 5, 5)).sites == []
    rbprune.register_rule(torch.special.sinc, channelwise)
    assert [site.name for site in trace(model, torch.zeros(2, 3, 5, 5)).sites] == ["a"]


def test_a_rule_can_be_taught_for_a_module_with_a_forward_of_its_own() -> None:
    class Sorted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sort(2)[0]

    taught: Rule = lambda walk, node, module, ids: ids  # noqa: E731
    model = nn.Sequential(conv(3, 6), Sorted(), conv(6, 2))
    x = torch.zeros(2, 3, 5, 5)
    assert trace(model, x).sites == []
    rbprune.register_rule(Sorted, taught)
    assert [site.name for site in trace(model, x).sites] == ["0"]


def test_a_rule_that_makes_another_shape_is_not_trusted() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sort(2)[0]

    rbprune.register_rule(Odd, lambda propagation, node, module, ids: ids[:, :1])
    graph = trace(nn.Sequential(conv(3, 6), Odd(), conv(6, 2)), torch.zeros(2, 3, 5, 5))
    assert graph.sites == []
    assert "'1' (Odd) is called in a way without a rule" in str(graph.frozen["0"])


REFUSED: dict[str, Refusal] = {
    "sorted": (
        lambda: Net(lambda n, x: n.b(torch.sort(n.a(x), 1)[0]), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "sort has no channel rule",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_frozen_with_the_line(name: str) -> None:
    check_refused(*REFUSED[name])


def test_a_module_with_control_flow_is_left_alone_and_the_rest_pruned() -> None:
    class Moody(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    model = nn.Sequential(conv(3, 6), nn.ReLU(), conv(6, 5), Moody(), conv(5, 4), nn.ReLU(), conv(4, 2))
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert [site.name for site in graph.sites] == ["0", "4"]
    assert "'3' (Moody) has no channel rule" in str(graph.frozen["2"])
