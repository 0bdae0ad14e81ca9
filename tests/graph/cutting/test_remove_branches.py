"""Whole branches removed: exact, repeated by the plan, followed by optimizer, costs and later cuts."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Plan, apply_plan, models, trace
from rbprune.errors import ModelError, UnprunableError
from rbprune.graph import ChannelGraph
from rbprune.graph.cost import MACS, PARAMS
from rbprune.graph.layer_shares import layers_without
from tests.graph.operations import Net, conv
from tests.graph.residual_networks import FORMS, Block, Flat, residual_net
from tests.networks import check_cut, relative_error, scramble


def whole(names: Any) -> dict[str, list[int]]:
    return {name: [0] for name in names}


def check_outputs(graph: ChannelGraph, drop: dict[str, list[int]], x: Tensor) -> None:
    with torch.no_grad(), graph.mask(drop):
        masked = graph.model(x)
    graph.remove(drop)
    assert relative_error(masked, graph.model(x)) < 1e-12


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_without_its_branch_a_block_is_the_masked_one_gradients_included(form: str, training: bool) -> None:
    if form == "dropout" and training:
        form = "layer scale"  # random numbers that are not drawn change those of others
    torch.manual_seed(0)
    net = scramble(residual_net(FORMS[form][0])).train(training)
    graph = trace(net, x := torch.randn(3, 3, 8, 8, dtype=torch.float64))
    fresh = copy.deepcopy(net)
    plan = check_cut(graph, whole(["1.0", "1.2"]), x)
    assert list(plan.blocks) == ["1.0", "1.2"]
    replayed = apply_plan(fresh, Plan.from_json(plan.to_json()))
    replayed.load_state_dict(net.state_dict(), strict=True)
    assert relative_error(net.eval()(x), replayed.eval()(x)) == 0
    assert not any(name.startswith(("1.0.conv", "1.2.conv")) for name in net.state_dict())


def test_a_flat_forward_loses_its_branches_too() -> None:
    net = scramble(Flat())
    graph = trace(net, x := torch.randn(3, 3, 8, 8, dtype=torch.float64))
    check_cut(graph, whole(graph.branches), x)
    assert [name for name, _ in net.named_parameters()] == ["stem.weight", "stem.bias", "head.weight", "head.bias"]


NETWORKS = {
    "resnet20-cifar": 7,
    "torchvision:resnet18": 5,
    "torchvision:mobilenet_v2": 10,
    "torchvision:regnet_y_400mf": 12,
    "torchvision:efficientnet_b0": 9,
}
SLOW = {"torchvision:resnet50": 12, "torchvision:convnext_tiny": 18, "torchvision:mobilenet_v3_large": 10}


@pytest.mark.parametrize(
    ("name", "number"), [*NETWORKS.items(), *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW.items())]
)
def test_branches_of_known_networks_go_exactly(name: str, number: int) -> None:
    torch.manual_seed(0)
    model = scramble(models.build(name))
    graph = trace(model, x := torch.randn(2, 3, 32, 32, dtype=torch.float64))
    assert len(graph.branches) == number
    assert graph.frozen_branches == {}
    graph.check_branches()
    assert all(branch.is_foldable for branch in graph.branches.values())
    some = list(graph.branches)[::2]
    with torch.no_grad(), graph.mask(whole(some)):
        masked = model(x)
    plan = graph.remove_blocks(some)
    with torch.no_grad():
        assert relative_error(masked, model(x)) < 1e-12
        fresh = apply_plan(models.build(name).double(), Plan.from_json(plan.to_json())).eval()
        fresh.load_state_dict(model.state_dict(), strict=True)
        assert relative_error(model(x), fresh(x)) == 0


def test_costs_and_sites_follow() -> None:
    net = scramble(residual_net(FORMS["relu after the sum"][0]))
    graph = trace(net, x := torch.randn(2, 3, 8, 8, dtype=torch.float64))
    foretold = {cost.name: cost.without(graph, {"1.1": 1, "1.1.conv1": 3, "1.0.conv1": 2}) for cost in (MACS, PARAMS)}
    layers = layers_without(graph, {"1.1": 1, "1.1.conv1": 3, "1.0.conv1": 2})
    branch = MACS.per_channel(graph, graph["1.1"])
    assert branch == 2 * 6 * 8 * 9 * 64 == graph.macs() - graph.macs_without({"1.1": 1})
    before = graph.macs()
    plan = graph.remove({"1.1": [0], "1.1.conv1": [0, 1, 2], "1.0.conv1": [0, 1]})
    again = trace(copy.deepcopy(net), x)
    for found in (graph, again):
        assert MACS.total(found) == foretold["macs"] == sum(layer.macs for layer in layers)
        assert PARAMS.total(found) == foretold["params"]
        assert "1.1.conv1" not in found
        assert list(found.branches) == ["1.0", "1.2"]
    assert graph.gone_sites == {"1.1.conv1": 8}
    assert "1.1.conv1" not in plan.sites
    (through,) = [site for site in graph.sites if site.residual == "sum"]
    assert not any(part.owner.startswith("1.1.") for part in through.parts)
    assert sum(layer.macs for layer in graph.history().original_layers(graph.layers())) == before
    assert sum(layer.macs for layer in again.history().original_layers(again.layers())) == before


def test_channels_then_a_block_then_channels_and_the_plan_of_all() -> None:
    torch.manual_seed(0)
    net = scramble(residual_net(FORMS["normalised after the sum"][0]))
    fresh = copy.deepcopy(net)
    x = torch.randn(3, 3, 8, 8, dtype=torch.float64)
    graph = trace(net, x)
    before = sum(layer.macs for layer in graph.layers())
    check_outputs(graph, {"0.0": [2], "1.0.conv1": [1, 3], "1.1.conv1": [0], "1.2.conv1": [2, 5]}, x)
    check_outputs(graph, whole(["1.1"]), x)
    check_outputs(graph, {"0.0": [0], "1.2.conv1": [1]}, x)
    later = trace(net, x)  # a second trace of the pruned network goes on
    check_outputs(later, whole(["1.0"]) | {"1.2.conv1": [0]}, x)
    plan = later.history().plan
    assert list(plan.blocks) == ["1.1", "1.0"]
    assert not any(name.startswith("1.1.conv") for name in (*plan.tensors, *plan.widths, *plan.sites))
    assert sum(layer.macs for layer in later.history().original_layers(later.layers())) == before
    replayed = apply_plan(fresh, Plan.from_json(plan.to_json()))
    replayed.load_state_dict(net.state_dict(), strict=True)
    assert relative_error(net(x), replayed(x)) == 0
    known = trace(replayed, x).history()
    assert sum(layer.macs for layer in known.original_layers(trace(replayed, x).layers())) == before


def test_the_optimizer_lets_go_of_what_is_gone_and_goes_on() -> None:
    net = residual_net(FORMS["relu after the sum"][0])
    x = torch.randn(4, 3, 8, 8)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    net(x).square().sum().backward()
    optimizer.step()
    graph = trace(net, x)
    graph.remove_blocks(["1.0"], optimizer=optimizer)
    left = {id(parameter) for parameter in net.parameters()}
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == left
    assert {id(p) for p in optimizer.state} <= left
    optimizer.zero_grad()
    net(x).square().sum().backward()
    optimizer.step()


def test_copies_pickles_compilation_and_export_work_on_what_is_left() -> None:
    net = residual_net(FORMS["another activation"][0]).eval()
    x = torch.randn(2, 3, 8, 8)
    trace(net, x).remove_blocks(["1.0", "1.1"])
    wanted = net(x)
    assert torch.equal(copy.deepcopy(net)(x), wanted)
    assert torch.allclose(torch.export.export(net, (x,)).module()(x), wanted, atol=1e-6)
    assert torch.allclose(torch.compile(net, backend="eager")(x), wanted, atol=1e-6)
    model = models.build("resnet20-cifar").eval()
    image = torch.randn(1, 3, 32, 32)
    trace(model, image).remove_blocks(["layer1.1", "layer3.2"])
    torch.save(model, stream := io.BytesIO())
    assert b"rbprune.graph" not in stream.getvalue(), "whoever loads it needs no rbprune beside the class of the model"


def overwritten(block: Block, x: Tensor) -> Tensor:
    return x + block.bn2(block.conv2(F.relu(block.bn1(block.conv1(block.relu(x))))))


def overwritten_in_a_forward_with_sizes(block: Block, x: Tensor) -> Tensor:
    return overwritten(block, x.view(x.size(0), 6, 8, 8))


def test_what_a_branch_does_to_its_shortcut_stays_where_the_run_tells_of_it() -> None:
    net = nn.Sequential(conv(3, 6), Block(overwritten), nn.Flatten()).eval().double()
    graph = trace(net, x := torch.randn(2, 3, 8, 8, dtype=torch.float64))
    graph.remove_blocks(["1"])
    assert torch.equal(net(x), net[0](x).relu().flatten(1))


def test_a_branch_that_changes_its_shortcut_is_refused_with_what_was_found() -> None:
    net = nn.Sequential(conv(3, 6), Block(overwritten_in_a_forward_with_sizes), nn.Flatten()).eval()
    graph = trace(net, x := torch.randn(2, 3, 8, 8))
    wanted = net(x)
    with pytest.raises(UnprunableError, match="the branch of '1' cannot be removed exactly: the outputs differ by"):
        graph.remove_blocks(["1"])
    assert torch.equal(net(x), wanted), "nothing has changed"
    assert "the outputs differ" in str(graph.frozen_branches["1"])
    with pytest.raises(UnprunableError, match="there is no branch '1' to remove; it is frozen: the outputs differ"):
        graph.remove_blocks(["1"])


def test_a_reader_that_writes_into_the_sum_gets_a_sum_of_its_own() -> None:
    """relu_ on the shortcut itself would spoil what the stem's own relu keeps for its backward pass."""
    stem = nn.Sequential(conv(3, 6), nn.Sigmoid())
    net = nn.Sequential(stem, Block(FORMS["no activation after the sum"][0]), nn.ReLU(inplace=True), nn.Flatten())
    graph = trace(net, x := torch.randn(2, 3, 8, 8))
    graph.remove_blocks(["1"])
    assert type(net[1]) is Block, "its modules pass on, the last gives zeros, and the sum is computed"
    assert graph.branches == {}
    assert graph.macs() == 3 * 6 * 9 * 64
    net(x).sum().backward()


def test_a_branch_in_another_shape_is_refused() -> None:
    net = Net(
        lambda n, x: n.d((y := n.a(x)) + n.c(n.b(y)[:, :2].reshape(y.size(0), 2, 8, 8))),
        a=conv(3, 6),
        b=conv(6, 4),
        c=conv(2, 6),
        d=conv(6, 2),
    )
    graph = trace(net, torch.randn(2, 3, 8, 8))
    graph.check_branches()
    assert graph.branches == {}
    assert "fails" in str(next(iter(graph.frozen_branches.values())))


def test_names_and_plans_that_do_not_fit_are_refused() -> None:
    net = residual_net(FORMS["relu after the sum"][0])
    graph = trace(net, torch.randn(2, 3, 8, 8))
    with pytest.raises(UnprunableError, match=r"no branch '1.9' to remove.*there are: 1.0, 1.1, 1.2"):
        graph.remove_blocks(["1.9"])
    plan = graph.remove_blocks(["1.2"])
    with pytest.raises(ModelError, match=r"the plan changes '1.2', which this Sequential does not have"):
        apply_plan(residual_net(FORMS["relu after the sum"][0], blocks=2), plan)


def test_a_factor_is_folded_into_the_last_module() -> None:
    net = scramble(residual_net(FORMS["squeeze and excitation"][0]))
    graph = trace(net, x := torch.randn(2, 3, 8, 8, dtype=torch.float64))
    graph.check_branches()
    hook = net.get_submodule("1.1.bn2").register_forward_hook(lambda module, args, output: 0.3 * output)
    wanted = net(x)
    hook.remove()
    graph.scale(graph["1.1"], torch.tensor([0.3], dtype=torch.float64))
    torch.testing.assert_close(net(x), wanted, rtol=1e-12, atol=1e-12)
