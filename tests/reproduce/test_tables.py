"""Channel tables beside the paper's figures."""

from __future__ import annotations

import pytest

from rbprune.reproduce import paper
from rbprune.reproduce.tables import channels_by_layer, channels_by_stage, measured
from tests.reproduce.small import shapes_only

LAYERS = [0, 2, 5, 7, 10, 12, 14, 17, 19, 21]


def test_the_papers_vgg_gives_the_papers_table() -> None:
    channels = {f"features.{n}": [p.channels, p.kept] for n, p in zip(LAYERS, paper.VGG16_CHANNELS, strict=True)}
    with shapes_only():
        table = channels_by_layer(paper.VGG16_CHANNELS, {"model": "torchvision:vgg16", "channels": channels})
    assert table.rows[0] == ("conv1_1 (features.0)", "16/64 (25 %)", "1.1x", "16/64 (25 %)", "1.10x")
    for row, left in zip(table.rows, paper.VGG16_CHANNELS, strict=True):
        assert row[1] == row[3]
        assert float(row[4][:-1]) == pytest.approx(left.macs, abs=0.07)


def test_stages_of_resnet50_count_two_convolutions_per_block() -> None:
    blocks = {"layer1": (3, 64), "layer2": (4, 128), "layer3": (6, 256), "layer4": (3, 512)}
    channels = {
        f"{stage}.{block}.conv{n}": [width, width // 2]
        for stage, (count, width) in blocks.items()
        for block in range(count)
        for n in (1, 2)
    }
    with shapes_only():
        table = channels_by_stage("RBP", paper.RESNET50_STAGES, {"model": "torchvision:resnet50", "channels": channels})
    assert [row[3].split(" ")[0] for row in table.rows] == ["192/384", "512/1024", "1536/3072", "1536/3072"]
    assert [row[1].split(" ")[0] for row in table.rows] == ["20/384", "67/1024", "2408/3072", "1105/3072"]
    ratios = [float(row[4][:-1]) for row in table.rows]
    assert ratios == sorted(ratios) and ratios[-1] > 2


def test_a_run_becomes_a_row_of_the_papers_kind() -> None:
    summary = {"channels": {"a": [8, 3], "b": [4, 4]}, "macs_ratio": 2.5, "params_ratio": 3.0, "error_after": 9.5}
    assert measured("RBP", summary) == paper.PaperResult("RBP", 2.5, 9.5, None, 3.0, "3-4")
    assert measured("RBP", {**summary, "top5_after": 1.5}).top5 == 1.5
