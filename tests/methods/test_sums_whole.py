"""Sums from the first stage to the last: every method, refusals, ratios, resuming."""

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

from rbprune import Price, Pruner, apply_plan, models, trace
from rbprune.errors import ConfigError, UnprunableError
from rbprune.graph import Plan
from rbprune.methods import METHODS, PruningSettings, schedule_sites
from rbprune.models.resnet_cifar import ResNetCifar
from rbprune.runs.folder import RunFolder
from rbprune.settings.recipe import build_settings
from rbprune.train.checkpoint import load_checkpoint
from rbprune.train.runner import Runner
from rbprune.train.state import RunData
from rbprune.train.stream import LoaderStream
from rbprune.utils.interrupt import Interrupted
from tests.methods.residual_network import SUMS, data, network
from tests.networks import relative_error, stripes


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
        schedule_sites(graph, PruningSettings(sums=True, method="cp"))
    assert schedule_sites(graph, PruningSettings(sums=True, method="cp", only=["a"])) == [["a"]]
    assert schedule_sites(graph, PruningSettings(sums=False, method="cp")) == [["a"], ["kernel"]]
    assert schedule_sites(graph, PruningSettings(sums=True)) == [["stem"], ["a"], ["kernel"]]


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
