"""Whole branches judged by one theta each: evidence, price, forecast, transaction, targets, and the stages after."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Plan, Price, Pruner, apply_plan, trace
from rbprune.bayes.likelihood import Softmax
from rbprune.errors import ConfigError, UnprunableError
from rbprune.graph.branch import make_branch
from rbprune.graph.cost import MACS
from rbprune.methods import branch_stage
from rbprune.methods.branch_stage import schedule_stages, still_there
from rbprune.methods.channel_factor import ChannelFactor, Gates
from rbprune.methods.curvature import RunningCurvature, curvature_slopes
from rbprune.methods.settings import PruningSettings
from tests.graph.residual_networks import FORMS, residual_net
from tests.networks import tiny_cnn

IMAGE = torch.zeros(2, 3, 8, 8)
RELU = FORMS["relu after the sum"][0]
SIZE = 512


def data(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Three classes by the mean of each colour."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (SIZE,), generator=generator)
    images = 0.5 * torch.randn(SIZE, 3, 8, 8, generator=generator)
    images[torch.arange(SIZE), labels] += 1
    return images, labels


def trained(dead: tuple[int, ...] = (1,)) -> nn.Sequential:
    """A network that knows the classes, whose blocks ``dead`` contribute next to nothing and the others much."""
    torch.manual_seed(0)
    net = residual_net(RELU)
    for number in dead:
        nn.init.constant_(net[1][number].bn2.weight, 1e-3)
        nn.init.zeros_(net[1][number].bn2.bias)
    x, y = data()
    optimizer = torch.optim.Adam([p for n, p in net.named_parameters() if not any(f"1.{d}." in n for d in dead)], 1e-2)
    for step in range(60):
        rows = torch.arange(step * 64, step * 64 + 64) % SIZE
        optimizer.zero_grad()
        F.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    return net


def run_stage(pruner: Pruner, number: int, steps: int = 60, **finish: Any) -> Any:
    return run_started(pruner, pruner.stage(number), steps, **finish)


def run_started(pruner: Pruner, stage: Any, steps: int, **finish: Any) -> Any:
    x, y = data()
    optimizer = torch.optim.SGD(stage.param_groups(1e-3), lr=1e-3)
    for step in range(steps):
        rows = torch.arange(step * 64, step * 64 + 64) % SIZE
        optimizer.zero_grad()
        (F.cross_entropy(pruner.model(x[rows]), y[rows]) + stage.kl()).backward()
        optimizer.step()
        if step == steps - 20:
            stage.close(15)
    return stage.finish(batches=[x[:64]], optimizer=optimizer, **finish)


def test_a_branch_that_does_little_goes_and_the_others_stay() -> None:
    net = trained()
    pruner = Pruner(
        net, IMAGE, dataset_size=SIZE, loss_fn=F.cross_entropy, blocks=True, price=Price(nats=0.25), sums=False
    )
    channels = [[site.name] for site in pruner.graph.sites if site.residual != "sum"]
    assert pruner.stages == [["1.0", "1.1", "1.2"], *channels]
    x, y = data()
    pruner.measure([(x[:128], y[:128]), (x[128:256], y[128:256])])
    result = run_stage(pruner, 0)
    assert {name: after for name, (_, after) in result.channels.items()} == {"1.0": 1, "1.1": 0, "1.2": 1}
    assert result.cut.forecast is not None
    assert result.cut.measured is not None
    assert abs(result.cut.measured) < 0.01
    assert isinstance(net[1][1], nn.Identity)
    assert pruner.sites_left([names[0] for names in pruner.stages].index("1.1.conv1")) == []
    seen = []
    for stage in pruner:
        seen += stage.names
        stage.abandon()
        stage.result = result
    assert "1.1.conv1" not in seen
    assert "1.0.conv1" in seen


class _Given(ChannelFactor):
    def __init__(self, theta: Tensor) -> None:
        super().__init__()
        self.theta = theta

    def draw(self, rows: int) -> Tensor:
        return self.theta

    def mean(self) -> Tensor:
        return self.theta[0]


def test_the_curvature_of_a_branch_is_that_of_the_loss_in_its_factor() -> None:
    """Against the exact Gauss-Newton curvature, from the Jacobian of the scores in plain factors on the branches."""
    net, (x, _) = trained().eval(), data()
    graph = trace(net, IMAGE)
    branches = list(graph.branches.values())

    def scores(theta: Tensor) -> Tensor:
        hooks = [
            net.get_submodule(branch.output).register_forward_hook(lambda m, a, out, t=factor: t * out)
            for branch, factor in zip(branches, theta, strict=True)
        ]
        outputs: Tensor = net(x)
        for hook in hooks:
            hook.remove()
        return outputs

    jacobian = torch.autograd.functional.jacobian(scores, torch.ones(3))
    p = net(x).softmax(1).detach()
    fisher = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    exact = torch.einsum("nci,ncd,ndj->ij", jacobian, fisher, jacobian)
    theta = torch.ones(SIZE, 3, requires_grad=True)
    gates = Gates(graph, branches, _Given(theta), always=True)
    outputs, estimate = net(x), RunningCurvature(3, cross=True)
    for _ in range(300):
        (slopes,) = curvature_slopes(Softmax(), outputs, None, [theta])
        estimate.update(slopes, SIZE)
    gates.detach()
    assert float(exact[1, 1]) < 1e-2 < float(exact[0, 0]), "the dead branch brings next to nothing"
    torch.testing.assert_close(estimate.products, exact, rtol=0.15, atol=0.15)


def test_a_branch_costs_what_it_saves() -> None:
    graph = trace(residual_net(RELU), IMAGE)
    branch, inside = graph["1.1"], graph["1.1.conv1"]
    per_mmac = Price(nats_per_mmac=1000, nats=1).resolve(graph, SIZE)
    assert float(per_mmac.of(graph, branch)) == pytest.approx(1000 * 2 * 6 * 8 * 9 * 64 / 1e6)
    assert float(per_mmac.of(graph, branch)) == pytest.approx(float(per_mmac.of(graph, inside).sum()))
    plain = Price(nats=20).resolve(graph, SIZE)
    assert float(plain.of(graph, branch)) == 8 * 20, "as much as its channels at the same price"


def test_a_cut_of_branches_that_costs_too_much_is_taken_back() -> None:
    net = trained()
    changes = {"blocks": True, "price": Price(nats=1e5), "max_rise": 0.02, "confidence": 0.0}
    pruner = Pruner(net, IMAGE, dataset_size=SIZE, loss_fn=F.cross_entropy, **changes)
    x, y = data()
    batches = [(x[:128], y[:128]), (x[128:256], y[128:256])]
    pruner.measure(batches)
    result = run_stage(pruner, 0, steps=40)
    assert result.cut.asked == 3
    assert result.cut.gone == 1
    assert list(pruner.graph.removed_blocks) == ["1.1"]
    with torch.no_grad():
        loss = sum(float(F.cross_entropy(net.eval()(a), b)) for a, b in batches) / 2
    assert loss <= pruner.dense_measures.loss + 0.02 + 1e-6  # type: ignore[union-attr]


def test_the_loss_before_a_cut_is_that_of_the_folded_network_whatever_mode_its_norms_are_in() -> None:
    pruner = Pruner(trained(dead=()), IMAGE, dataset_size=SIZE, loss_fn=F.cross_entropy, blocks=True, confidence=0.0)
    x, y = data()
    pruner.measure([(x[:128], y[:128]), (x[128:256], y[128:256])])
    stage = pruner.stage(0)
    with torch.no_grad():
        stage.factors.rate.fill_(0.3)
    check = stage.context.check
    assert check is not None
    before = check.losses(pruner.model, batch_statistics=True)
    assert torch.equal(before, check.losses(pruner.model, batch_statistics=True)), "nothing is drawn"
    stage.abandon()
    for name in stage.names:
        pruner.graph.scale(pruner.graph[name], torch.tensor([0.7]))
    torch.testing.assert_close(check.losses(pruner.model, batch_statistics=True), before, rtol=1e-5, atol=1e-7)


def test_a_branch_has_noise_also_where_its_norm_is_frozen() -> None:
    pruner = Pruner(trained(dead=()), IMAGE, dataset_size=SIZE, loss_fn=F.cross_entropy, blocks=True)
    stage = pruner.stage(0)
    pruner.model.train()
    for module in pruner.model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    pruner.model(data()[0][:16])
    assert stage.factors.drawn is not None and len(stage.factors.drawn) == 16
    stage.abandon()


def test_a_branch_is_worth_its_price_unless_there_is_no_choice() -> None:
    common = {
        "dataset_size": SIZE,
        "loss_fn": F.cross_entropy,
        "blocks": True,
        "price": Price(nats=3),
        "method": "rrbp",
        "sums": False,
    }
    stage = Pruner(trained(), IMAGE, **common).stage(0)
    assert {name: float(nats) for name, nats in stage.worth().items()} == pytest.approx(
        dict.fromkeys(("1.0", "1.1", "1.2"), 8 * 3 / SIZE)
    )
    stage.abandon()
    pruner = Pruner(trained(), IMAGE, macs_ratio=1.5, **common)
    stage = pruner.stage(0)
    stage.search.undisturbed.fill_(0.5)  # under a ratio it is the price that was found before there was noise
    assert float(stage.worth()["1.1"]) == pytest.approx(0.5 * 8 * 3 / SIZE)
    stage.abandon()
    channels = pruner.stage(1)
    assert channels.worth() == {}, "the evidence of channels decides by itself"
    channels.abandon()
    far = Pruner(trained(), IMAGE, macs_ratio=6, **common).stage(0)
    assert far.worth() == {}, "the channels alone do not reach it"
    far.abandon()


def test_a_branch_stays_where_it_is_measured_to_cost_more_than_the_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"blocks": True, "method": "rrbp", "macs_ratio": 2, "price": Price(nats_per_example=1), "sums": True}
    pruner = Pruner(trained(), IMAGE, dataset_size=SIZE, loss_fn=F.cross_entropy, **settings)
    x, y = data()
    pruner.measure([(x[:128], y[:128]), (x[128:256], y[128:256])])
    dense, stage = pruner.graph.macs(), pruner.stage(0)
    monkeypatch.setattr(stage, "worth", lambda: {name: -torch.ones(1) for name in stage.names})  # it must even gain
    cut = run_started(pruner, stage, 40).cut
    assert cut.asked > cut.gone == 0
    for number in range(1, len(pruner)):
        run_stage(pruner, number, steps=40)
    assert not pruner.graph.removed_blocks
    assert dense / pruner.graph.macs() >= 2, "the channels do it"


@pytest.mark.parametrize("method", ["ibp", "rrbp"])
def test_a_ratio_is_met_with_branches_and_channels(method: str) -> None:
    net = trained()
    pruner = Pruner(
        net,
        IMAGE,
        dataset_size=SIZE,
        loss_fn=F.cross_entropy,
        blocks=True,
        method=method,
        macs_ratio=2.5,
        price=Price(nats_per_example=1),
    )
    dense = pruner.graph.macs()
    for number in range(len(pruner)):
        run_stage(pruner, number, steps=40)
    assert list(pruner.graph.removed_blocks) == ["1.1"], "the one that earns least of its price goes first"
    assert dense / pruner.graph.macs() == pytest.approx(2.5, rel=0.1)
    assert dense / pruner.graph.macs() >= 2.5


def test_branches_alone_and_after_the_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = trace(residual_net(RELU), IMAGE)
    chosen = PruningSettings(method="rrbp", blocks=True, only=["1.0", "1.2"])
    assert schedule_stages(graph, chosen) == [["1.0", "1.2"]]
    settings = PruningSettings(method="rrbp", blocks=True, sums=False)
    channels = [f"1.{number}.conv1" for number in range(3)]
    assert schedule_stages(graph, settings) == [["1.0", "1.1", "1.2"], channels]
    assert schedule_stages(graph, PruningSettings(method="rrbp", sums=False)) == [channels]
    monkeypatch.setattr(branch_stage, "BRANCHES_FIRST", False)
    assert schedule_stages(graph, settings) == [channels, ["1.0", "1.1", "1.2"]]
    graph.remove_blocks(["1.1"])
    assert still_there(graph, ["1.0", "1.1", *channels]) == ["1.0", "1.0.conv1", "1.2.conv1"]


def test_methods_and_networks_without_branches_are_refused() -> None:
    graph = trace(residual_net(RELU), IMAGE)
    with pytest.raises(ConfigError, match="method 'uniform' does not judge whole branches; rbp, rrbp, ibp do"):
        schedule_stages(graph, PruningSettings(method="uniform", blocks=True))
    with pytest.raises(UnprunableError, match="finds no residual block .*: there are none; set prune.blocks=false"):
        schedule_stages(trace(tiny_cnn(), torch.zeros(1, 1, 8, 8)), PruningSettings(blocks=True))
    net = residual_net(lambda b, x: x + F.relu(b.branch(x)).clamp(max=6.0))
    graph = trace(net, IMAGE)
    graph.branches = {"1.0": make_branch("1.0", "1.0.relu", [{"1.0": []}])}
    graph._by_name = {"1.0": graph.branches["1.0"]}
    graph.branches["1.0"].is_proved = True
    with pytest.raises(UnprunableError, match="no factor can be folded into 1.0"):
        schedule_stages(graph, PruningSettings(blocks=True))


def test_the_network_after_a_stage_of_branches_is_repeated_by_its_plan() -> None:
    net = trained()
    fresh = copy.deepcopy(net)
    pruner = Pruner(
        net, IMAGE, dataset_size=SIZE, loss_fn=F.cross_entropy, blocks=True, price=Price(nats=0.25), sums=False
    )
    run_stage(pruner, 0)
    x, _ = data()
    apply_plan(fresh, Plan.from_json(pruner.plan.to_json())).load_state_dict(net.state_dict(), strict=True)
    assert torch.equal(fresh.eval()(x), net.eval()(x))
    assert MACS.total(pruner.graph) == MACS.total(trace(fresh, IMAGE))
