"""The paper's accounting of ResNet50, stage by stage, against figures worked out by hand."""

from __future__ import annotations

import pytest
import torch

from rbprune import models, trace
from rbprune.errors import ConfigError, UnprunableError
from rbprune.graph import ChannelGraph
from rbprune.measure.count import count_kept, count_run

# layer1..layer4: blocks, width of the first two convolutions, width of the block's output, side of its output
STAGES = [(3, 64, 256, 56), (4, 128, 512, 28), (6, 256, 1024, 14), (3, 512, 2048, 7)]


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
