from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from rbprune.data import load
from rbprune.errors import ModelError
from rbprune.models import build
from rbprune.models.resnet_cifar import BasicBlock, ResNetCifar

DATA, WEIGHTS = os.environ.get("RBPRUNE_DATA"), os.environ.get("RBPRUNE_WEIGHTS")


@pytest.mark.parametrize(("depth", "parameters"), [(20, 269_722), (56, 853_018), (110, 1_727_962)])
def test_sizes_are_those_of_the_published_networks(depth: int, parameters: int) -> None:
    model = ResNetCifar(depth)
    assert sum(p.numel() for p in model.parameters()) == parameters
    convolutions = [n for n, m in model.named_modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) + 1 == depth


def test_the_shortcut_takes_every_second_pixel_and_pads_both_sides() -> None:
    block = BasicBlock(16, 32, 2).eval()
    torch.nn.init.zeros_(block.bn2.weight)
    x = torch.rand(2, 16, 8, 8)
    out = block(x)
    assert torch.equal(out[:, 8:24], x[:, :, ::2, ::2])
    assert out[:, :8].abs().sum() == out[:, 24:].abs().sum() == 0
    same = BasicBlock(16, 16, 1).eval()
    torch.nn.init.zeros_(same.bn2.weight)
    assert torch.equal(same(x), F.relu(x))


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
