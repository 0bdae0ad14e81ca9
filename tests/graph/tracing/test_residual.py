"""Residual blocks: what lies inside of them, and what passes through their sums."""

from __future__ import annotations

import torch
from torch import nn

from rbprune import models, trace
from tests.graph.operations import Net, conv


def test_sites_of_a_residual_network() -> None:
    graph = trace(models.build("resnet20-cifar"), torch.zeros(1, 3, 32, 32))
    inside = [site for site in graph.sites if site.residual == "inside"]
    assert [site.name for site in inside] == [f"layer{i}.{j}.conv1" for i in (1, 2, 3) for j in range(3)]
    assert [site.name for site in inside if site.downsample] == ["layer2.0.conv1", "layer3.0.conv1"]
    assert all(site.block == site.name.removesuffix(".conv1") for site in inside)
    assert all(site.consumers == [site.name.replace("conv1", "conv2")] for site in inside)
    through = {site.name: site for site in graph.sites if site.residual == "sum"}
    # the padding of a shortcut lies on both sides, so its channels are two sites of each width beside those of the stem
    widened = ("layer2.0.conv2", "layer2.0.conv2#2", "layer3.0.conv2", "layer3.0.conv2#2")
    assert list(through) == ["conv1", *widened]
    assert {"layer1.0.conv2", "layer3.2.conv2"} <= set(through["conv1"].producers)
    assert set(through["layer3.0.conv2"].producers) == {f"layer3.{j}.conv2" for j in range(3)}
    assert not any(site.downsample or site.block for site in through.values())


def test_a_block_that_is_blended_with_its_shortcut_is_residual() -> None:
    net = Net(
        lambda n, x: n.d(torch.lerp(y := n.a(x), n.c(n.b(y)), 0.5)),
        a=conv(3, 6),
        b=nn.Conv2d(6, 5, 1),
        c=nn.Conv2d(5, 6, 1),
        d=conv(6, 2),
    )
    sites = trace(net, torch.zeros(1, 3, 8, 8)).sites
    assert [(site.name, site.residual) for site in sites] == [("a", "sum"), ("b", "inside")]


def test_every_first_block_of_resnet50_has_a_shortcut_of_its_own() -> None:
    graph = trace(models.build("torchvision:resnet50"), torch.zeros(1, 3, 64, 64))
    inside = [site for site in graph.sites if site.residual == "inside"]
    assert len(inside) == 32
    assert {site.block for site in inside if site.downsample} == {f"layer{i}.0" for i in (1, 2, 3, 4)}
    assert sum(site.channels for site in inside if site.block and site.block.startswith("layer1")) == 384
