"""The accounting table of the paper, recomputed."""

from __future__ import annotations

import pytest
import torch

from rbprune import models, trace
from rbprune.errors import ConfigError
from rbprune.measure.count import count_kept

CIFAR10 = {
    "SBP": ("47-50-91-115-227-160-50-72-51-12-34-39-20-20-272", 3.16, 17.1),
    "BC": ("51-62-125-128-228-129-38-13-9-6-5-6-6-6-20", 2.57, 18.5),
    "RBC": ("43-62-120-120-182-113-40-12-20-11-6-9-10-10-22", 3.04, 23.3),
    "IBP": ("45-63-122-123-246-199-82-31-20-17-14-14-31-21-21", 2.32, 13.5),
    "RBP": ("50-63-123-108-104-57-23-14-9-8-6-7-11-11-12", 3.50, 38.9),
}


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
