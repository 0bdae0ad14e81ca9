"""Residual sums under every method: one factor for all readers, the price of all that goes, exact cuts, deep ratios."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn
from torch.func import jacrev

from rbprune import Price, Pruner, apply_plan, models, trace
from rbprune.bayes.likelihood import Softmax
from rbprune.errors import ConfigError, UnprunableError
from rbprune.graph import Plan
from rbprune.graph.cost import MACS, PARAMS
from rbprune.methods import METHODS, PruningSettings, schedule_sites
from rbprune.methods.channel_factor import Gates
from rbprune.methods.curvature import curvature_slopes
from rbprune.methods.ranking import UnitFactor, filter_norms
from rbprune.models.resnet_cifar import ResNetCifar
from rbprune.runs.folder import RunFolder
from rbprune.settings.recipe import build_settings
from rbprune.train.checkpoint import load_checkpoint
from rbprune.train.runner import Runner
from rbprune.train.state import RunData
from rbprune.train.stream import LoaderStream
from rbprune.utils.interrupt import Interrupted
from tests.networks import relative_error, stripes


class Residual(nn.Module):
    """Two sums for images of 1 x 8 x 8: one behind an identity, one behind a convolution, which reads the first.

    The second block normalises before it convolves, so a norm reads the first sum too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.a, self.a_norm = nn.Conv2d(6, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5)
        self.b, self.b_norm = nn.Conv2d(5, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.before = nn.BatchNorm2d(6)
        self.c, self.c_norm = nn.Conv2d(6, 7, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(7)
        self.d, self.d_norm = nn.Conv2d(7, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.down, self.down_norm = nn.Conv2d(6, 8, 1, stride=2, bias=False), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.with_factors(x, None, None)

    def with_factors(self, x: Tensor, one: Tensor | None, two: Tensor | None) -> Tensor:
        """The forward with factors written out at every reader of the first and of the second sum."""

        def times(value: Tensor, factor: Tensor | None) -> Tensor:
            return value if factor is None else value * factor.view(-1, *[1] * (value.dim() - 2))

        y = F.relu(self.stem_norm(self.stem(x)))
        y = y + self.b_norm(self.b(F.relu(self.a_norm(self.a(times(y, one))))))
        z = F.relu(self.c_norm(self.c(times(F.relu(self.before(y)), one))))
        z = self.d_norm(self.d(z)) + self.down_norm(self.down(times(y, one)))
        return self.head(times(F.relu(z).mean((2, 3)), two))


def network(seed: int = 0) -> Residual:
    torch.manual_seed(seed)
    model = Residual().double().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.3)
            module.running_mean.normal_(0, 0.3)  # type: ignore[union-attr]
            module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    return model


def data(count: int = 16) -> tuple[Tensor, Tensor]:
    images, labels = stripes(count)
    return images.double(), labels


SUMS = ["stem", "d"]


def test_the_sums_have_all_their_producers_and_readers() -> None:
    graph = trace(network(), data()[0][:1])
    assert [site.name for site in graph.sites if site.residual == "sum"] == SUMS
    assert (graph["stem"].producers, graph["stem"].consumers) == (["stem", "b"], ["a", "c", "down"])
    assert (graph["d"].producers, graph["d"].consumers) == (["d", "down"], ["head"])


@pytest.mark.parametrize("number", [0, 1])
def test_the_slopes_behind_the_evidence_are_those_of_one_factor_that_all_readers_share(number: int) -> None:
    """J^T v from the hooks on the readers against the Jacobian of a forward with the factors written out."""
    model, (x, _) = network(), data(5)
    graph = trace(model, x)
    site = graph[SUMS[number]]
    ones = torch.ones(site.channels, dtype=torch.float64)

    def outputs(theta: Tensor) -> Tensor:
        return model.with_factors(x, *(theta if number == k else None for k in range(2)))

    jacobian = jacrev(outputs)(ones)
    factors = UnitFactor(site.channels).double()
    gates = Gates(graph, [site], factors, always=True)
    z = model(x)
    torch.manual_seed(1)
    found = curvature_slopes(Softmax(), z, None, [factors.drawn])  # type: ignore[list-item]
    gates.detach()
    assert found is not None
    torch.manual_seed(1)
    direction = Softmax().direction(z.detach(), None).double()
    wanted = torch.einsum("nkc,nk->nc", jacobian, direction)
    torch.testing.assert_close(found[0].squares().double(), wanted.square().double(), rtol=1e-6, atol=1e-12)


def test_the_curvature_of_a_shared_factor_is_the_second_difference_of_the_divergence() -> None:
    """diag(J^T R J) is what KL(p(1) || p(theta)) curves by when one theta changes at all readers of a sum at once."""
    model, (x, _) = network(), data(6)
    ones, step = torch.ones(6, dtype=torch.float64), 1e-3
    jacobian = jacrev(lambda theta: model.with_factors(x, theta, None))(ones)
    p = model(x).softmax(1).detach()
    inner = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
    exact = torch.einsum("nkc,nkl,nlc->c", jacobian, inner, jacobian).detach()

    def divergence(theta: Tensor) -> Tensor:
        with torch.no_grad():
            return (p * (p.log() - model.with_factors(x, theta, None).log_softmax(1))).sum()

    for channel in range(6):
        shift = step * F.one_hot(torch.tensor(channel), 6)
        second = (divergence(ones + shift) + divergence(ones - shift)) / step**2  # divergence(ones) is 0
        assert float(second) == pytest.approx(float(exact[channel]), rel=1e-3)


def test_a_channel_of_a_sum_costs_what_disappears_with_it() -> None:
    model, (x, _) = network(), data()
    whole, positions = copy.deepcopy(model), {"stem": 64, "a": 64, "b": 64, "c": 16, "d": 16, "down": 16, "head": 1}

    def counted(net: nn.Module) -> tuple[int, int]:
        weights = {name: net.get_submodule(name).weight.numel() for name in positions}  # type: ignore[union-attr, operator]
        return sum(positions[name] * count for name, count in weights.items()), sum(weights.values())

    for name in SUMS:
        graph = trace(copy.deepcopy(whole), x)
        foreseen = [cost.per_channel(graph, graph[name]) for cost in (MACS, PARAMS)]
        price = Price(nats_per_mmac=1e6, nats=1e-3).resolve(graph, 100).of(graph, graph[name])
        before = counted(graph.model)
        graph.remove({name: [1]})
        gone = [b - a for b, a in zip(before, counted(graph.model), strict=True)]
        assert foreseen == pytest.approx(gone, rel=1e-12)
        assert float(price[0]) == pytest.approx(gone[0], rel=1e-6)


def test_a_layer_that_reads_and_makes_a_sum_loses_a_row_and_a_column() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.conv, self.head = nn.Conv2d(1, 4, 1), nn.Conv2d(4, 4, 1), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.stem(x)
            return self.head((y + self.conv(y)).mean((2, 3)))

    graph = trace(Plain(), torch.zeros(1, 1, 8, 8))
    (site,) = graph.sites
    assert site.residual == "sum"
    assert PARAMS.per_channel(graph, site) == 1 + (16 - 9) + 3
    assert PARAMS.without(graph, {site.name: 1}) == PARAMS.total(graph) - 11
    graph.remove({site.name: [0]})
    assert PARAMS.total(graph) == 3 + 9 + 9


def test_taylor_is_the_slope_of_one_factor_for_all_readers() -> None:
    model, (x, labels) = network(), data()
    stage = Pruner(model, x[:1], dataset_size=64, method="taylor", macs_ratio=1.5, sums=True, only=["stem"]).stage(0)
    stage.observe([(x, labels)], F.cross_entropy)
    value = stage.judge()["stem"].value
    stage.abandon()
    slopes = []
    for image, label in zip(x, labels, strict=True):
        theta = torch.ones(6, dtype=torch.float64, requires_grad=True)
        F.cross_entropy(model.with_factors(image[None], theta, None), label[None]).backward()
        assert theta.grad is not None
        slopes.append(theta.grad.abs())
    wanted = torch.stack(slopes).mean(0)
    torch.testing.assert_close(-value, wanted / wanted.norm(), rtol=1e-5, atol=1e-7)


def test_l1_is_over_all_producers_and_slimming_over_all_norms() -> None:
    model, (x, _) = network(), data()
    graph = trace(model, x)
    wanted = sum(model.get_submodule(name).weight.abs().flatten(1).sum(1) for name in ("stem", "b"))  # type: ignore[union-attr, operator]
    torch.testing.assert_close(filter_norms(graph, graph["stem"]), wanted)
    options = {"method": "slimming", "macs_ratio": 1.5, "sums": True, "only": SUMS, "options": {"l1": 0.25}}
    stage = Pruner(model, x[:1], dataset_size=64, **options).stage(0)  # type: ignore[arg-type]
    norms = {"stem": ("stem_norm", "b_norm", "before"), "d": ("d_norm", "down_norm")}
    scales = {
        name: torch.stack([model.get_submodule(norm).weight.detach().abs() for norm in found])  # type: ignore[union-attr, operator]
        for name, found in norms.items()
    }
    torch.testing.assert_close(stage.kl().detach(), 0.25 * sum(scale.sum() for scale in scales.values()))
    for name, verdict in stage.judge().items():
        torch.testing.assert_close(-verdict.value, scales[name].mean(0))
    stage.abandon()


def test_slimming_passes_over_the_padding_of_a_shortcut_which_is_no_norm() -> None:
    model, x = ResNetCifar(8, classes=3), torch.zeros(1, 3, 16, 16)
    stage = Pruner(model, x, dataset_size=64, method="slimming", macs_ratio=2, sums=True).stage(0)
    with torch.no_grad():
        for block in (model.layer2[0], model.layer3[0]):
            block.bn2.weight[: len(block.shortcut.below)] = torch.rand(len(block.shortcut.below))  # type: ignore
    verdicts = stage.judge()
    torch.testing.assert_close(-verdicts["layer3.0.conv2"].value, model.layer3[0].bn2.weight[:16].detach().double())
    assert verdicts["conv1"].value.tolist() == [-1.0] * 16
    stage.abandon()


def test_thinet_removes_what_all_readers_miss_least_and_not_what_one_of_them_ignores() -> None:
    model, (x, labels) = network(), data(32)
    with torch.no_grad():
        for reader in (model.a, model.c, model.down):
            reader.weight[:, 4] *= 1e-3
        model.a.weight[:, 2] = 0
    stage = Pruner(model, x[:1], dataset_size=64, method="thinet", macs_ratio=1.1, sums=True, only=["stem"]).stage(0)
    stage.count = 1  # type: ignore[attr-defined]
    stage.observe([(x, labels)] * 4, F.cross_entropy)
    assert stage.judge()["stem"].redundant.nonzero().flatten().tolist() == [4]
    stage.abandon()


def test_cp_fits_every_reader_of_a_sum_to_the_dense_network() -> None:
    """Channels 1 and 4 of the sum are the same throughout, so without one of them every reader can do as before."""
    model, (x, labels) = network(), data(256)
    with torch.no_grad():
        for name in ("stem", "b"):
            model.get_submodule(name).weight[4] = model.get_submodule(name).weight[1]  # type: ignore[union-attr, operator]
        for name in ("stem_norm", "b_norm", "before"):
            norm = model.get_submodule(name)
            for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
                tensor[4] = tensor[1]  # type: ignore[operator, index]
    found = Pruner(model, x[:1], dataset_size=64, method="cp", macs_ratio=1.1, sums=True, only=["stem"])
    stage = found.stage(0)
    stage.count = 1  # type: ignore[attr-defined]
    with torch.no_grad():
        before = model(x)
    stage.observe([(x, labels)] * 8, F.cross_entropy)
    assert stage.judge()["stem"].redundant.nonzero().flatten().tolist() in ([1], [4])
    stage.finish(batches=[])
    with torch.no_grad():
        assert relative_error(before, model(x)) < 1e-6


@pytest.mark.filterwarnings("ignore:every channel of")
@pytest.mark.parametrize("method", [name for name, each in METHODS.items() if each.branches != "only"])
def test_every_method_takes_sums_and_cuts_what_it_masks(method: str) -> None:
    model = network().train()
    fresh = copy.deepcopy(model)
    images, labels = data(64)
    told = METHODS[method].stage.needs_ratio
    options: dict[str, Any] = {"macs_ratio": 3.0, "least": 0.1} if told else {"price": Price(nats=60)}
    pruner = Pruner(model, images[:2], dataset_size=64, method=method, sums=True, downsampling=True, **options)
    names = [name for names in pruner.stages for name in names]
    assert set(SUMS) <= set(names)
    seen: dict[str, Any] = {}
    plain = pruner.graph.remove

    def remove(drop: dict[str, list[int]], **more: Any) -> Plan:
        model.eval()
        with torch.no_grad(), pruner.graph.mask(drop):
            seen["masked"] = model(images)
        return plain(drop, **more)

    pruner.graph.remove = remove  # type: ignore[method-assign, assignment]
    cut = set()
    for stage in pruner:
        model.train()
        for _ in range(3):
            optimizer = torch.optim.SGD(stage.param_groups(1e-3, 1e-2), momentum=0.9)
            (F.cross_entropy(model(images), labels) + stage.kl()).backward()
            optimizer.step()
        if stage.observes:
            stage.observe([(images, labels)], F.cross_entropy)
        if stage.diagnostic in ("rate", "minus lambda") and stage.module is not None:
            _make_redundant(stage)
        result = stage.finish(batches=[], optimizer=optimizer)
        cut |= {name for name, (before, after) in result.channels.items() if after < before}
        model.eval()
        with torch.no_grad():
            assert relative_error(seen["masked"], model(images)) < 1e-9
        model.train()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()  # its state has followed the cut
    if told or pruner.method.stage.__name__ in ("DiracStage", "DDSStage"):
        assert cut & set(SUMS), "no sum was cut, so this shows nothing"
    again = apply_plan(fresh, Plan.from_json(pruner.plan.to_json()))
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.eval()(images), model.eval()(images))


def _make_redundant(stage: Any) -> None:
    """Whatever was learned, let every third channel be redundant."""
    with torch.no_grad():
        for name, parameter in stage.module.named_parameters():
            if parameter.dim() == 1 and name.endswith(("rate", "scale")):
                parameter[::3] = 0.9 if stage.diagnostic == "rate" else 0.0


class Raw(nn.Module):
    """A sum that a convolution without a module reads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.b = nn.Conv2d(1, 6, 1), nn.Conv2d(6, 5, 1), nn.Conv2d(5, 6, 1)
        self.kernel, self.head = nn.Parameter(torch.randn(4, 6, 1, 1)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        return self.head(F.conv2d(y + self.b(self.a(y).relu()), self.kernel).mean((2, 3)))


def test_a_sum_with_a_reader_that_takes_no_factor_is_refused_by_name() -> None:
    graph = trace(Raw(), torch.zeros(1, 1, 8, 8))
    with pytest.raises(
        UnprunableError, match=r"residual sum 'stem' .*read by 'kernel', .*nn.Conv2d.*keep=\['stem'\].*prune.sums=false"
    ):
        schedule_sites(graph, PruningSettings(sums=True))
    assert schedule_sites(graph, PruningSettings(sums=True, only=["a"])) == [["a"]]
    assert schedule_sites(graph, PruningSettings(sums=False)) == [["a"], ["kernel"]]


def test_what_only_the_sums_can_bring_is_refused_without_them_and_they_are_named() -> None:
    model, x = models.build("torchvision:resnet18"), torch.zeros(2, 3, 32, 32)
    with pytest.raises(ConfigError, match=r"5\.46x fewer.* or let the residual sums lose .*\(prune.sums=true\)"):
        Pruner(model, x, dataset_size=64, method="uniform", macs_ratio=8, sums=False)
    with pytest.raises(ConfigError, match=r"prune.least = 0.1\)$"):
        Pruner(model, x, dataset_size=64, method="uniform", macs_ratio=100, sums=True)


@pytest.mark.parametrize("method", ["uniform", "rbp"])
@pytest.mark.parametrize("name", ["torchvision:resnet18", "torchvision:mobilenet_v2"])
def test_eight_times_fewer_macs_are_reached(name: str, method: str) -> None:
    torch.manual_seed(0)
    model = models.build(name, classes=4)
    x, labels = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 3])
    pruner = Pruner(model, x, dataset_size=64, loss_fn=F.cross_entropy, method=method, macs_ratio=8, sums=True)
    dense = pruner.graph.macs()
    for stage in pruner:
        optimizer = torch.optim.SGD(stage.param_groups(lr=1e-3))
        for _ in range(2):  # no more: whether the ratio is met is no matter of training
            loss = F.cross_entropy(model.train()(x), labels) + stage.kl(labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stage.finish(batches=[])
    assert 8 <= dense / pruner.graph.macs() < 8 * 1.01
    sums = [site for site in pruner.graph.sites if site.residual == "sum"]
    assert all(1 <= site.channels < site.original for site in sums)
    fresh = apply_plan(models.build(name, classes=4), Plan.from_json(pruner.plan.to_json()))
    fresh.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(fresh.eval()(x), model.eval()(x))


def test_interrupted_in_a_stage_of_sums_a_padded_network_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """The padding of its shortcuts is not in the weights of a checkpoint, and must be as it was all the same."""
    images, labels = stripes(64)
    batches = [(images[i : i + 16].expand(-1, 3, -1, -1), labels[i : i + 16]) for i in range(0, 64, 16)]
    stream = LoaderStream(batches, 64)
    prune = {"method": "rrbp", "sums": True, "downsampling": True, "macs_ratio": 4, "epochs": 3, "settle": 0}

    def runner(files: RunFolder | None) -> Runner:
        torch.manual_seed(0)
        raw = {"model": {"name": "own"}, "data": {"name": "loader"}, "prune": prune, "finetune": {"epochs": 1}}
        data = RunData(train=lambda batch_size: stream, val=stream)
        model, console = ResNetCifar(8, classes=3), Console(file=io.StringIO())
        settings = build_settings(raw | {"runtime": {"threads": 1, "recalibrate": 2}})
        return Runner(settings, model, batches[0][0], data, F.cross_entropy, files=files, console=console)

    whole = runner(None)
    assert whole.run()["macs_ratio"] >= 4
    shortcut = whole.model.layer3[0].shortcut  # type: ignore[union-attr, index]
    assert 1 <= len(shortcut.below) < 16  # type: ignore[union-attr, arg-type]

    (tmp_path / "run").mkdir()
    stopped = runner(RunFolder(tmp_path / "run"))

    def stop(signals: Any) -> None:
        current = stopped.current
        if current is not None and current.stage is not None and "conv1" in current.stage.names and current.step == 5:
            stopped._save()
            raise Interrupted(2, "stop")

    stopped._between_steps = stop  # type: ignore[method-assign]
    with pytest.raises(Interrupted):
        stopped.run()
    resumed = runner(RunFolder(tmp_path / "run"))
    checkpoint, path, _ = load_checkpoint(RunFolder(tmp_path / "run").checkpoints)
    resumed.restore(checkpoint, path.name, [])
    resumed.run()
    state = whole.model.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in resumed.model.state_dict().items())
