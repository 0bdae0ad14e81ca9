"""Settings that exclude each other."""

from __future__ import annotations

import pytest

from rbprune.errors import ConfigError
from rbprune.settings.sections import PruneSettings


@pytest.mark.parametrize("name", ["macs_ratio", "params_ratio"])
def test_how_far_to_go_is_said_once(name: str) -> None:
    assert PruneSettings(max_error_rise=0).max_error_rise == 0
    with pytest.raises(ConfigError, match=f"max_error_rise = 0.5 goes as far as the error allows, and {name} = 2 says"):
        PruneSettings(max_error_rise=0.5, **{name: 2})
