"""Accounting: the paper's tables recomputed, figures worked out by hand, networks really cut, torch's own counter."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from rbprune import models, trace
from rbprune.errors import ConfigError, UnprunableError
from rbprune.graph import ChannelGraph
from rbprune.graph.cost import MACS
from rbprune.measure.count import count_kept, count_run, count_widths
from tests.networks import random_drop

CIFAR10 = {
    "SBP": ("47-50-91-115-227-160-50-72-51-12-34-39-20-20-272", 3.16, 17.1),
    "BC": ("51-62-125-128-228-129-38-13-9-6-5-6-6-6-20", 2.57, 18.5),
    "RBC": ("43-62-120-120-182-113-40-12-20-11-6-9-10-10-22", 3.04, 23.3),
    "IBP": ("45-63-122-123-246-199-82-31-20-17-14-14-31-21-21", 2.32, 13.5),
    "RBP": ("50-63-123-108-104-57-23-14-9-8-6-7-11-11-12", 3.50, 38.9),
}
# layer1..layer4: blocks, width of the first two convolutions, width of the block's output, side of its output
STAGES = [(3, 64, 256, 56), (4, 128, 512, 28), (6, 256, 1024, 14), (3, 512, 2048, 7)]


@pytest.mark.parametrize(("keep", "macs", "params"), CIFAR10.values(), ids=CIFAR10)
def test_rows_of_the_cifar10_table(keep: str, macs: float, params: float) -> None:
    result = count_kept(trace(models.build("vgg16-cifar"), torch.zeros(1, 3, 32, 32)), keep)
    assert round(result.total.macs_ratio, 2) == macs
    assert round(result.total.params_ratio, 1) == params


def test_the_accumulating_row_of_vgg16_on_ilsvrc() -> None:
    with torch.device("meta"):
        model = models.build("torchvision:vgg16")
        example = torch.zeros(1, 3, 224, 224)
    result = count_kept(trace(model, example), "16-39-45-81-65-68-116-132-135-257")
    wanted = [1.10, 1.15, 1.30, 1.37, 1.63, 2.00, 2.22, 2.93, 4.36, 5.04]
    assert [round(step.conv_macs_ratio, 2) for step in result.accumulated] == wanted
    assert round(result.total.macs_ratio, 2) == 4.88


def test_json_has_the_totals_and_every_layer() -> None:
    result = count_kept(trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28)), "5-10-16").as_dict()
    assert result["macs"] == 5 * 25 * 24**2 + 10 * 5 * 25 * 64 + 160 * 16 + 160
    assert result["macs_ratio"] == pytest.approx(2_293_000 / result["macs"])
    assert [layer["name"] for layer in result["layers"]] == ["conv1", "conv2", "fc1", "fc2"]
    assert result["layers"][0]["params_ratio"] == 4


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ("5-x", "such as 50-63-123; this is '5-x'"),
        ("21", "asks for 21 channels of 'conv1', which has 20"),
        ("1-1-1-1", "has 4 numbers, but there are only 3"),
        ("0", "asks for 0"),
    ],
)
def test_impossible_widths_are_errors(keep: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        count_kept(trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28)), keep)


def resnet50() -> ChannelGraph:
    with torch.device("meta"):
        model = models.build("torchvision:resnet50")
        example = torch.zeros(1, 3, 224, 224)
    return trace(model, example)


def macs(first: list[int], second: list[int]) -> tuple[int, int]:
    """MACs of ResNet50 whose blocks have these widths in each stage: of everything, and of the convolutions."""
    total, before = 64 * 3 * 49 * 112**2, 64
    for (blocks, _, out, side), a, b in zip(STAGES, first, second, strict=True):
        for block in range(blocks):
            stride = 2 if block == 0 and out > 256 else 1
            total += before * a * (side * stride) ** 2  # 1x1; torchvision strides in the 3x3
            total += a * b * 9 * side**2
            total += b * out * side**2
            total += before * out * side**2 if block == 0 else 0
            before = out
    return total + 2048 * 1000, total


def test_stages_of_resnet50_have_the_channels_of_their_first_two_convolutions() -> None:
    result = count_kept(resnet50())
    assert [(row.stage, row.channels) for row in result.stages] == [
        ("layer1", 384),
        ("layer2", 1024),
        ("layer3", 3072),
        ("layer4", 3072),
    ]
    assert all(row.kept == row.channels and row.percent == 100 and row.macs_ratio == 1 for row in result.stages)
    assert result.total.macs == macs([64, 128, 256, 512], [64, 128, 256, 512])[0] == 4_089_184_256


def test_ratios_accumulate_from_stage_to_stage() -> None:
    channels: dict[str, list[int]] = {}
    first, second = [32, 96, 200, 100], [48, 64, 128, 512]
    for stage, (blocks, width, _, _) in enumerate(STAGES):
        for block in range(blocks):
            for conv, left in (("conv1", first[stage]), ("conv2", second[stage])):
                channels[f"layer{stage + 1}.{block}.{conv}"] = [width, left]
    result = count_run(resnet50(), channels)
    assert [row.kept for row in result.stages] == [3 * 80, 4 * 160, 6 * 328, 3 * 612]
    assert [round(row.percent, 2) for row in result.stages] == [62.5, 62.5, 64.06, 59.77]
    dense = [64, 128, 256, 512]
    for done, row in enumerate(result.stages, start=1):
        now = macs(first[:done] + dense[done:], second[:done] + dense[done:])
        whole = macs(dense, dense)
        assert row.macs_ratio == pytest.approx(whole[0] / now[0], rel=1e-12)
        assert row.conv_macs_ratio == pytest.approx(whole[1] / now[1], rel=1e-12)
    assert result.stages[-1].macs_ratio == result.total.macs_ratio


def test_keep_gives_the_same_rows_and_counts_the_first_convolution_in_the_first_stage() -> None:
    by_keep = count_kept(resnet50(), "64-32-48")
    by_run = count_run(resnet50(), {"layer1.0.conv2": [64, 48], "layer1.0.conv1": [64, 32]})
    assert by_keep.stages == by_run.stages
    assert by_keep.stages[0].kept == 384 - 32 - 16
    assert by_keep.stages[3].macs_ratio == by_keep.stages[0].macs_ratio > 1
    stem = count_kept(resnet50(), "32")
    assert stem.stages[0].kept == 384
    assert stem.stages[0].macs_ratio == stem.total.macs_ratio > 1


def test_a_network_without_blocks_has_no_stages() -> None:
    assert count_kept(trace(models.build("lenet5"), torch.zeros(1, 1, 28, 28)), "5-10").stages == []


def test_channels_of_another_network_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'layer1.0.conv1' has 64 channels; \[128, 4\] is of another network"):
        count_run(resnet50(), {"layer1.0.conv1": [128, 4]})
    with pytest.raises(UnprunableError, match="no site 'layer9'"):
        count_run(resnet50(), {"layer9": [128, 4]})


class Mixed(nn.Module):
    """Grouped and depthwise convolutions, a concatenation, a flatten, and a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1, groups=2)
        self.depth, self.point = nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.Conv2d(12, 6, 1)
        self.again, self.last = nn.Conv2d(6, 6, 1), nn.Linear(4 * (6 + 8), 5)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x).relu()
        y = self.point(self.depth(self.b(a).relu()).relu()).relu()
        y = self.again(self.again(y).relu()).relu()
        return self.last(torch.cat([y, a], 1).flatten(1))


NETWORKS = {
    "lenet5": (1, 28, 28),
    "vgg16-cifar": (3, 32, 32),
    "resnet20-cifar": (3, 32, 32),
    "torchvision:resnet50": (3, 224, 224),
    "torchvision:mobilenet_v2": (3, 224, 224),
    "mixed": (3, 2, 2),
}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("name", "shape"), NETWORKS.items())
def test_the_count_is_that_of_the_network_when_it_is_really_cut(name: str, shape: tuple[int, ...], seed: int) -> None:
    with torch.device("meta"):
        model = Mixed() if name == "mixed" else models.build(name)
    graph = trace(model, torch.zeros(1, *shape, device="meta"))
    dense = graph.layers()
    for _ in range(2):  # of a whole network, and of one that was cut before
        drop = random_drop(graph, seed)
        for site in drop:
            drop[site] = drop[site][: -(-len(drop[site]) // 2)]
        before = graph.layers()
        found = count_widths(graph, {site: graph[site].channels - len(gone) for site, gone in drop.items()})
        assert graph.layers() == before, "nothing was cut for it"
        graph.remove(drop)
        real = graph.layers()
        assert [(row.name, row.macs, row.params) for row in found.layers] == [(r.name, r.macs, r.params) for r in real]
        assert (found.total.macs, found.total.params) == (graph.macs(), graph.params())
        weights = {name: weight.numel() for name, weight in model.named_parameters()}
        assert all(row.params == weights[f"{row.name}.weight"] for row in found.layers)
    assert graph.macs() < sum(layer.macs for layer in dense)


def test_what_accumulates_is_what_cutting_site_after_site_gives() -> None:
    model = models.build("resnet20-cifar")
    graph = trace(model, torch.zeros(1, 3, 32, 32))
    widths = {site.name: max(1, site.channels // (2 + number % 3)) for number, site in enumerate(graph.sites)}
    found, dense = count_widths(graph, widths), graph.macs()
    cut = trace(copy.deepcopy(model), torch.zeros(1, 3, 32, 32))
    for step, (name, width) in zip(found.accumulated, widths.items(), strict=True):
        cut.remove({name: range(width, cut[name].channels)})
        assert (step.site, step.kept, step.channels) == (name, width, graph[name].channels)
        assert step.macs_ratio == dense / cut.macs()


class Frames(nn.Module):
    """One convolution for each of several frames, as models of video do."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(self.a(x.flatten(0, 1)).relu()).mean((2, 3))
        return self.c(y.unflatten(0, (x.shape[0], x.shape[1])).mean(1))


class Pixels(nn.Module):
    """A linear layer for each place, with batch and places in one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3), nn.Linear(8, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.b(self.a(x).permute(0, 2, 3, 1).reshape(-1, 8)).relu())


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 4, 3, groups=2)), (3, 9, 9)),
        (
            lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 6, 2, stride=2), nn.Conv2d(6, 2, 1)),
            (3, 8, 8),
        ),
        (lambda: nn.Sequential(nn.ConvTranspose1d(3, 8, 4, stride=3), nn.ReLU(), nn.Conv1d(8, 2, 3)), (3, 7)),
        (Frames, (10, 3, 8, 8)),
        (Pixels, (3, 8, 8)),
    ],
    ids=["convolutions", "transposed", "transposed 1d", "frames", "pixels"],
)
def test_macs_are_half_of_torchs_operations(make: Callable[[], nn.Module], shape: tuple[int, ...], batch: int) -> None:
    model, x = make(), torch.randn(batch, *shape)
    with FlopCounterMode(display=False) as counter:
        model(x)
    graph = trace(model, x)
    assert graph.macs() == count_kept(graph).total.macs == counter.get_total_flops() / 2 / batch


def test_a_run_that_removed_branches_is_counted_without_them() -> None:
    graph = resnet50()
    sites = {site.name: [site.channels, site.channels] for site in graph.sites if site.residual == "inside"}
    sites |= {"layer3.2.conv1": [256, 0], "layer3.2.conv2": [256, 0], "layer1.0.conv1": [64, 32]}
    counted = count_run(graph, sites, ["layer3.2"])
    model = models.build("torchvision:resnet50")
    cut = trace(model, torch.zeros(1, 3, 224, 224, device="cpu"))
    wanted = MACS.without(cut, {"layer3.2": 1, "layer1.0.conv1": 32})
    assert counted.total.macs == wanted
    assert next(row for row in counted.layers if row.name == "layer3.2.conv1").macs_ratio == math.inf
    assert next(row for row in counted.stages if row.stage == "layer3").kept == 6 * 512 - 512
    with pytest.raises(ConfigError, match=r"\[256, 0\] is of another network"):
        count_run(resnet50(), {"layer3.2.conv1": [256, 0]})
