"""Examples for checks and calibration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from rbprune import data
from rbprune.errors import ConfigError, DataError
from rbprune.export.network import PrunedNetwork, open_network
from rbprune.export.samples import CHECKED_IMAGES, samples_of
from rbprune.settings.sections import DataSettings
from tests.runs.test_pair import run_folder

pytestmark = pytest.mark.filterwarnings("ignore:.*has no list of checksums")


@pytest.fixture
def network(tmp_path: Path) -> PrunedNetwork:
    """LeNet-5 of a run on the data that comes with the package."""
    return open_network(run_folder(tmp_path, "lenet5"))


def test_the_check_takes_validation_images_and_the_calibration_training_images(network: PrunedNetwork) -> None:
    samples = samples_of(network)
    source = data.load("mnist-subset", val=600)
    assert source.val is not None
    wanted = next(iter(source.val.batches(torch.arange(CHECKED_IMAGES), 32, seed=0, augment=False)))[0]
    assert torch.equal(samples.inputs, wanted)
    assert samples.origin == "32 validation images of mnist-subset"
    held_out = samples.held_out
    assert held_out is not None
    assert sum(len(targets) for _, targets in held_out()) == 600
    train = next(iter(source.train.batches(torch.arange(len(source.train)), 10_000, seed=0, augment=False)))[0]
    known = {image.numpy().tobytes() for image in train}
    used = [image for batch in samples.calibrate() for image in batch]
    assert len(used) == 256
    assert all(image.numpy().tobytes() in known for image in used)


def test_without_a_validation_set_the_test_images_are_named(network: PrunedNetwork) -> None:
    samples = samples_of(dataclasses.replace(network, data=DataSettings(name="mnist-subset")))
    assert (samples.origin, samples.held_out_name) == ("32 test images of mnist-subset", "test data")


def test_without_data_the_numbers_are_random_and_it_says_why(network: PrunedNetwork) -> None:
    gone = dataclasses.replace(network, data=DataSettings(name="cifar10"))
    samples = samples_of(gone)
    assert samples.inputs.shape == (CHECKED_IMAGES, 1, 28, 28)
    assert "random numbers, because the data cannot be loaded: cifar10: no folder was given" in samples.origin
    with pytest.raises(ConfigError, match="int8 is calibrated on training images, and cifar10: no folder was given"):
        samples.calibrate()
    with pytest.raises(DataError, match="no folder was given"):
        samples_of(gone, required=True)
    assert samples_of(dataclasses.replace(network, data=None)).origin.endswith("give it with --set data.name=NAME")
