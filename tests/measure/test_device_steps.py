"""The steps of a device, for devices that were made up."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from rbprune import trace
from rbprune.measure.device_steps import find_step, heaviest, remainders, sweep_widths
from rbprune.measure.layer_modules import find_layers
from rbprune.measure.measuring import Measuring


@pytest.mark.parametrize("step", [1, 2, 4, 8, 16, 32])
def test_a_device_that_computes_blocks_is_found_out(step: int) -> None:
    assert find_step([{width: 5 + 3.0 * math.ceil(width / step) for width in range(33, 65)}]) == step


def test_a_device_that_dislikes_odd_widths_has_a_step() -> None:
    slow = {width: width * (1.0 if width % 8 == 0 else 1.3) for width in range(33, 65)}
    assert find_step([slow]) == 8


def test_what_odd_widths_lose_does_not_pay_for_a_step_that_is_too_large() -> None:
    """Multiples of 8 take time in proportion, and all others three times as much."""
    assert find_step([{width: width * (1.0 if width % 8 == 0 else 3.0) for width in range(33, 65)}]) == 8


def test_nothing_seen_is_no_step() -> None:
    assert find_step([]) == 1 and remainders({}, 4) == [1.0] * 4


def test_remainders_are_relative_to_the_next_multiple() -> None:
    sweep = {width: math.ceil(width / 4) * (1.5 if width % 4 == 3 else 1.0) for width in range(33, 65)}
    assert remainders(sweep, 4) == pytest.approx([1, 1, 1, 1.5])


def test_of_every_kind_the_layer_with_the_most_work_is_swept() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), nn.Conv2d(64, 64, 1), nn.Conv2d(64, 8, 3, groups=8)
    )
    x = torch.zeros(1, 3, 10, 10)
    kinds = heaviest(find_layers(trace(model, x), x))
    assert {kind: layer.name for kind, layer in kinds.items()} == {
        "Conv2d 3x3": "1", "Conv2d 1x1": "2", "Conv2d 3x3 grouped": "3"
    }  # fmt: skip
    swept = sweep_widths(kinds["Conv2d 1x1"], Measuring(rounds=3, device="cpu"))
    assert list(swept["inputs"]) == list(swept["outputs"]) == list(range(33, 65))
    assert sweep_widths(kinds["Conv2d 3x3 grouped"], Measuring(rounds=3)) == {"inputs": {}, "outputs": {}}
