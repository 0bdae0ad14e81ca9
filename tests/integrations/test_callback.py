"""What the callbacks for other people's trainers share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rbprune.errors import ConfigError
from rbprune.integrations.callback import HostedCallback
from tests.networks import tiny_cnn


class Trainers:
    """A trainer's own class of callbacks."""

    def __init__(self) -> None:
        self.begun = True


class Callback(HostedCallback, Trainers):
    """As a callback of such a trainer is made."""

    begins_with = "Trainer.go"

    def begin(self, **how: Any) -> None:
        self.stages = self._host(tiny_cnn(), 100, **how)

    def warn(self, left: int) -> None:
        self._tell_if_short(left, "train longer")


def callback(**settings: Any) -> Callback:
    inputs = torch.zeros(2, 1, 8, 8)
    return Callback(inputs, None, None, 30, 1, settings)


def test_before_training_there_is_nothing_and_the_message_says_what_begins_it() -> None:
    made = callback()
    assert made.begun and made.stages is None
    with pytest.raises(ConfigError, match=r"nothing has been pruned yet: Callback begins with Trainer\.go"):
        _ = made.plan


def test_settings_reach_the_stages() -> None:
    made = callback(method="l1", macs_ratio=1.5)
    made.begin(select=lambda outputs: outputs)
    assert made.stages is not None and made.stages.pruner.settings.method == "l1"
    assert (made.results, made.is_done, made.plan.sites) == ([], False, made.stages.plan.sites)


def test_a_compiled_network_is_refused() -> None:
    made = callback()
    with pytest.raises(ConfigError, match="compile"):
        made._host(torch.compile(tiny_cnn()), 100)  # type: ignore[arg-type]


def test_too_few_steps_are_told_with_the_remedy() -> None:
    made = callback()
    made.begin()
    assert made.stages is not None
    most = 30 * len(made.stages.pruner)
    made.warn(most)
    with pytest.warns(
        UserWarning, match=f"may take {most} training steps, and Trainer makes 3: .* train longer, or lower"
    ):
        made.warn(3)
