"""Parameters and output that verbs share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rbprune.cli.options import command, sizes, traced
from rbprune.errors import ConfigError


def test_a_shape_is_numbers_between_crosses() -> None:
    assert sizes("3x224x224") == (3, 224, 224)
    assert sizes(None) is None
    with pytest.raises(ConfigError, match="--input is a shape such as 3x224x224; this is '3,224'"):
        sizes("3,224")


def test_a_model_is_traced_on_the_given_shape() -> None:
    assert traced("lenet5", None).macs() == 2_293_000
    assert traced("resnet20-cifar", "3x64x64").macs() > 3 * traced("resnet20-cifar", None).macs()


def test_the_command_is_what_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(Path("/usr/bin/rbprune")), "demo", "--out", "x"])
    assert command() == ["rbprune", "demo", "--out", "x"]
