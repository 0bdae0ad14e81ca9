"""Examples that a file is checked with, calibrated on and judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from rbprune import models
from rbprune.data.source import Source
from rbprune.errors import ConfigError, RbpruneError
from rbprune.export.network import PrunedNetwork
from rbprune.export.quantise import CALIBRATION_BATCH, CALIBRATION_IMAGES
from rbprune.runs.build import EVALUATION_BATCH

CHECKED_IMAGES = 32
"""Examples that a file is checked with."""


@dataclass(frozen=True)
class Samples:
    """Inputs for the check; and, for int8, training inputs and held-out batches of (inputs, targets)."""

    inputs: Any
    origin: str
    """What the inputs are, for the report."""
    calibration: Callable[[], Iterable[Any]] | None = None
    held_out: Callable[[], Iterable[tuple[Any, Any]]] | None = None
    held_out_name: str = "validation data"
    missing: str = "no training data was given"
    """Why there is nothing to calibrate on, where that is so."""

    def calibrate(self) -> Iterable[Any]:
        """Training inputs, or why there are none."""
        if self.calibration is None:
            raise ConfigError(
                f"int8 is calibrated on training images, and {self.missing}; "
                "give the folder of the data with --set data.path=DIR, or calibration=LOADER in Python"
            )
        return self.calibration()


def samples_of(network: PrunedNetwork, shape: tuple[int, ...] | None = None, *, required: bool = False) -> Samples:
    """Validation images of the network's data (test images where none were held out); random numbers where the data
    cannot be loaded and is not ``required``."""
    try:
        data = network.load_data()
    except (RbpruneError, OSError) as error:
        if required:
            raise
        inputs = models.example_input(network.name, network.model, shape or network.input_shape)
        random = torch.randn(CHECKED_IMAGES, *inputs.shape[1:], generator=torch.Generator().manual_seed(0))
        return Samples(random, f"random numbers, because the data cannot be loaded: {error}", missing=str(error))
    source, name = (data.test, "test") if data.val is None else (data.val, "validation")
    inputs = next(iter(_batches(source, torch.arange(min(CHECKED_IMAGES, len(source))), CHECKED_IMAGES)))[0]
    chosen = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))[:CALIBRATION_IMAGES]
    assert network.data is not None
    return Samples(
        inputs,
        f"{len(inputs)} {name} images of {network.data.name}",
        calibration=lambda: (x for x, _ in _batches(data.train, chosen, CALIBRATION_BATCH)),
        held_out=lambda: _batches(source, torch.arange(len(source)), EVALUATION_BATCH),
        held_out_name=f"{name} data",
    )


def _batches(source: Source, order: torch.Tensor, size: int) -> Iterator[tuple[Any, Any]]:
    batches = source.batches(order, size, seed=0, augment=False)
    return ((inputs, targets) for inputs, targets in batches if len(targets))
