from __future__ import annotations

import copy
import logging
import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from rbprune import apply_plan, trace
from rbprune.data import load
from rbprune.errors import ModelError
from rbprune.graph import Plan
from rbprune.models import build
from rbprune.models.resnet_cifar import BasicBlock, ResNetCifar, ZeroPaddedShortcut
from tests.networks import check_cut, random_drop, relative_error, scramble

DATA, WEIGHTS = os.environ.get("RBPRUNE_DATA"), os.environ.get("RBPRUNE_WEIGHTS")


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (56, 853_018), (110, 1_727_962)])
def test_sizes_are_those_of_the_published_networks(depth: int, parameters: int) -> None:
    model = ResNetCifar(depth)
    assert sum(p.numel() for p in model.parameters()) == parameters
    convolutions = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) + 1 == depth


def test_the_shortcut_takes_every_second_pixel_and_pads_both_sides() -> None:
    block = BasicBlock(16, 32, 2).eval()
    assert isinstance(block.shortcut, ZeroPaddedShortcut)
    torch.nn.init.zeros_(block.bn2.weight)
    x = torch.rand(2, 16, 8, 8)
    out = block(x)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert out[:, :8].abs().sum() == out[:, 24:].abs().sum() == 0
    same = BasicBlock(16, 16, 1).eval()
    torch.nn.init.zeros_(same.bn2.weight)
    assert torch.equal(same(x), F.relu(x))


def as_published(model: ResNetCifar, x: torch.Tensor) -> torch.Tensor:
    """The forward as it was written before widths could follow a cut: the padding is a number."""
    x = F.relu(model.bn1(model.conv1(x)))
    for layer in (model.layer1, model.layer2, model.layer3):
        for block in layer:
            out = block.bn2(block.conv2(F.relu(block.bn1(block.conv1(x)))))
            pad = (block.conv2.out_channels - x.shape[1]) // 2
            x = F.relu(out + (F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, pad, pad)) if pad else x))
    return model.linear(x.mean((2, 3)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_outputs_are_those_of_a_padding_that_is_a_number(dtype: torch.dtype) -> None:
    model = ResNetCifar(20).to(dtype).eval()
    x = torch.randn(2, 3, 32, 32, dtype=dtype)
    with torch.no_grad():
        assert torch.equal(model(x), as_published(model, x))


def test_the_padding_is_neither_in_the_state_nor_a_parameter_nor_counted() -> None:
    model = ResNetCifar(20)
    assert not any("shortcut" in key for key in model.state_dict())
    assert not any("shortcut" in name for name, _ in model.named_parameters())
    graph = trace(model, torch.zeros(1, 3, 32, 32))
    assert not any("shortcut" in layer.name for layer in graph.layers())
    assert graph.params() == sum(p.numel() for p in model.parameters() if p.dim() > 1)


def test_every_channel_of_every_sum_may_go_and_ties_stem_middle_and_end() -> None:
    """Channel i of a narrow sum is channel pad + i of the next one."""
    graph = trace(ResNetCifar(20), torch.zeros(1, 3, 32, 32))
    sums = {site.name: site for site in graph.sites if site.residual == "sum"}
    assert {name: site.channels for name, site in sums.items()} == {
        "conv1": 16,
        "layer2.0.conv2": 8,
        "layer2.0.conv2#2": 8,
        "layer3.0.conv2": 16,
        "layer3.0.conv2#2": 16,
    }
    places = {part.owner: part.positions[:, 0].tolist() for part in sums["conv1"].parts if part.role == "out"}
    assert places["conv1"] == places["layer1.2.conv2"] == list(range(16))
    assert places["layer2.1.conv2"] == list(range(8, 24))
    assert places["layer3.0.conv2"] == list(range(24, 40))
    assert list(graph.frozen) == ["linear"]


@pytest.mark.parametrize("projections", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_sums_are_cut_exactly_with_outputs_and_gradients(projections: bool, training: bool) -> None:
    model = scramble(ResNetCifar(20, projections=projections)).train(training)
    fresh = copy.deepcopy(model)
    for module in (*model.modules(), *fresh.modules()):
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 0.0
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    graph = trace(model, x)
    drop = {name: gone for name, gone in random_drop(graph).items() if graph[name].residual == "sum"}
    assert len(drop) == (3 if projections else 5)
    plan = check_cut(graph, drop, x)
    again = apply_plan(fresh, Plan.from_json(plan.to_json()))
    assert torch.equal(again(x), model(x))
    for name, buffer in model.named_buffers():
        assert buffer.shape == again.get_buffer(name).shape
        assert buffer.dtype == again.get_buffer(name).dtype


def test_cut_to_one_channel_of_each_site_and_traced_again_it_still_runs() -> None:
    model = ResNetCifar(20).eval()
    x = torch.randn(1, 3, 32, 32)
    graph = trace(model, x)
    graph.remove({site.name: range(1, site.channels) for site in graph.sites})
    assert [len(model.layer3[0].shortcut.below), model.layer3[2].conv2.out_channels] == [1, 5]
    assert model(x).shape == (1, 10)
    graph = trace(model, x)
    assert graph.sites == []
    assert "one channel" in str(graph.frozen["layer1.0.conv1"])


def test_a_second_trace_of_a_cut_network_ties_the_same_channels() -> None:
    model = scramble(ResNetCifar(20))
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    trace(model, x).remove({"conv1": [0, 3], "layer2.0.conv2": [1, 2, 3, 4, 5, 6], "layer3.0.conv2#2": [0]})
    graph = trace(model, x)
    drop = {name: gone for name, gone in random_drop(graph, 1).items() if graph[name].residual == "sum"}
    assert set(drop) == {"conv1", "layer2.0.conv2", "layer2.0.conv2#2", "layer3.0.conv2", "layer3.0.conv2#2"}
    check_cut(graph, drop, x)


def test_a_cut_network_with_padding_goes_through_the_usual_tools() -> None:
    logging.disable(logging.WARNING)
    model = ResNetCifar(20).eval()
    x = torch.randn(2, 3, 32, 32)
    graph = trace(model, x)
    graph.remove(random_drop(graph))
    with torch.no_grad():
        wanted = model(x)
        assert torch.equal(copy.deepcopy(model)(x), wanted)
        torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), wanted)
        torch.testing.assert_close(torch.compile(model, backend="eager")(x), wanted)
        double = copy.deepcopy(model).to(torch.float64)
        assert relative_error(wanted.double(), double(x.double())) < 1e-4
    logging.disable(logging.NOTSET)


def test_padding_of_channels_elsewhere_than_in_dimension_one_is_refused_with_a_reason() -> None:
    class Turned(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.pad = torch.nn.Conv2d(3, 4, 1), ZeroPaddedShortcut(1, 1)
            self.b = torch.nn.Conv2d(10, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.pad(self.a(x).transpose(1, 2)))

    graph = trace(Turned(), torch.zeros(1, 3, 8, 8))
    assert graph.sites == []
    assert "does not find the channels in dimension 1" in str(graph.frozen["a"])


@pytest.mark.parametrize(("name", "parameters"), [("resnet20b-cifar", 272_474), ("resnet56b-cifar", 855_770)])
def test_the_variant_with_projections_has_a_convolution_and_a_norm_more_for_each_change_of_width(
    name: str, parameters: int
) -> None:
    """Option B: 16 x 32 and 32 x 64 weights of 1x1 convolutions, and two parameters of each normalised channel."""
    model = build(name)
    assert sum(p.numel() for p in model.parameters()) == parameters
    extra = [key for key, _ in model.named_parameters() if "shortcut" in key]
    assert extra == [f"layer{k}.0.shortcut.{n}" for k in (2, 3) for n in ("0.weight", "1.weight", "1.bias")]
    plain = sum(p.numel() for p in build(name.replace("b-", "-")).parameters())
    assert parameters == plain + 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
    assert model.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_it_can_be_traced() -> None:
    model = ResNetCifar(20).eval()
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(fx.symbolic_trace(model)(x), model(x))


@pytest.mark.parametrize("depth", [2, 21, 0])
def test_an_impossible_depth_is_refused(depth: int) -> None:
    with pytest.raises(ModelError, match=rf"depth must be 6n \+ 2 .* got {depth}"):
        ResNetCifar(depth)


@pytest.mark.skipif(not (DATA and WEIGHTS), reason="RBPRUNE_DATA and RBPRUNE_WEIGHTS name no CIFAR10 and weights")
def test_pretrained_weights_classify_cifar10() -> None:
    assert DATA and WEIGHTS
    model = build("resnet20-cifar", weights=Path(WEIGHTS) / "resnet20-cifar10.safetensors").eval()
    wrong = 0
    with torch.inference_mode():
        for x, y in load("cifar10", DATA).test.batches(torch.arange(1000), 250, seed=0, augment=False):
            wrong += int((model(x).argmax(1) != y).sum())
    assert wrong / 1000 < 0.1
