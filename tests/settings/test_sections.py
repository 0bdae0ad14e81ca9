"""Settings that exclude each other."""

from __future__ import annotations

import pytest

from rbprune.errors import ConfigError
from rbprune.settings.sections import DataSettings, PruneSettings


@pytest.mark.parametrize("name", ["macs_ratio", "params_ratio"])
def test_how_far_to_go_is_said_once(name: str) -> None:
    assert PruneSettings(max_error_rise=0).max_error_rise == 0
    with pytest.raises(ConfigError, match=f"max_error_rise = 0.5 goes as far as the error allows, and {name} = 2 says"):
        PruneSettings(max_error_rise=0.5, **{name: 2})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mean": [0.5]}, r"mean = \[0.5\] must be three numbers"),
        ({"std": [1.0, float("inf"), 1.0]}, "Input should be a finite number"),
        ({"std": [0.0, 1.0, 1.0]}, "images are divided by it, so it must be positive"),
    ],
)
def test_colours_are_three_and_can_be_divided_by(given: dict[str, list[float]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DataSettings(name="folder", **given)  # type: ignore[arg-type]
