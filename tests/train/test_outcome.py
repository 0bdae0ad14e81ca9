"""What a run came to is said in plain words, and what is bad is never left to be found."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rbprune.methods import Price, PruningSettings
from rbprune.train.outcome import judge_run


def summary(**changes: Any) -> dict[str, Any]:
    return {
        "metric": "error",
        "error_before": 10.0,
        "error_after": 10.3,
        "macs_ratio": 2.5,
        "params_ratio": 3.0,
        "undecided": {"a": 0.1, "b": 0.0},
        "channels": {"a": [10, 5], "b": [30, 10]},
        "guarded": [],
        **changes,
    }


DEFAULTS = PruningSettings(price=Price(nats_per_example=2))
CASES: list[tuple[dict[str, Any], PruningSettings, str, str]] = [
    ({}, DEFAULTS, "good", "2.50x fewer MACs and 3.00x fewer parameters, for 0.3 points of error"),
    ({"error_after": 9.7}, DEFAULTS, "good", "Better than the dense network by 0.3 points"),
    ({"error_after": 41.0}, DEFAULTS, "bad", "The error rose by 31 points .* a lower prune.price"),
    (
        {"error_after": 41.0, "undecided": {"a": 0.9, "b": 0.6}},
        DEFAULTS,
        "bad",
        r"68% of the decisions had not settled: give the stages more data \(prune\.epochs\)",
    ),
    ({"error_after": 12.0, "guarded": ["a"]}, DEFAULTS, "bad", "all channels of 'a' were redundant"),
    (
        {"macs_ratio": 1.0, "params_ratio": 1.0},
        DEFAULTS,
        "bad",
        r"Nothing was removed: every channel earned .*nats_per_example = 6\) or prune\.macs_ratio = 2 removes more",
    ),
    (
        {"macs_ratio": 1.0, "params_ratio": 1.0},
        PruningSettings(price=Price(nats=20)),
        "bad",
        r"prune\.price\.nats = 60",
    ),
    (
        {"macs_ratio": 1.0, "params_ratio": 1.0, "undecided": {"a": 1.0, "b": 0.5}},
        DEFAULTS,
        "bad",
        "Nothing was removed: 62% of the decisions had not settled; longer stages",
    ),
    ({}, PruningSettings(macs_ratio=4), "bad", "4x fewer MACs were asked for, and 2.50x reached"),
    ({}, PruningSettings(params_ratio=3), "good", "for 0.3 points of error"),
    ({"error_before": None}, DEFAULTS, "unknown", "nobody knows what it cost: give validation data"),
    ({"metric": "loss", "error_after": 10.5}, DEFAULTS, "good", "for 5 % of loss"),
    ({"metric": "loss", "error_after": 0.001}, DEFAULTS, "good", "Better than the dense network by 100 %, with"),
    ({"metric": "loss", "error_after": 12.0}, DEFAULTS, "bad", "The loss rose by 20 % for 2.50x fewer MACs"),
    (
        {
            "metric": "loss",
            "error_after": 12.0,
            "val_error_after": 0.378,
            "val_lowest": {"val_error": 0.284, "epoch": 0},
        },
        DEFAULTS,
        "bad",
        r"the validation loss was 0\.284 before the fine-tuning and has risen to 0\.378 since.* fewer finetune\.epochs",
    ),
    (
        {"error_after": 12.0, "val_error_after": 11.5, "val_lowest": {"val_error": 10.0, "epoch": 3}},
        DEFAULTS,
        "bad",
        "the validation error was 10 % after epoch 3 of the fine-tuning and has risen to 11.5 % since",
    ),
    (
        {"error_after": 12.0, "val_error_after": 11.5, "val_lowest": {"val_error": 11.0, "epoch": 3}},
        DEFAULTS,
        "bad",
        "longer fine-tuning",
    ),
]


@pytest.mark.parametrize(("changes", "settings", "level", "text"), CASES)
def test_the_verdict_says_what_was_reached_and_what_to_do(
    changes: dict[str, Any], settings: PruningSettings, level: str, text: str
) -> None:
    found = judge_run(summary(**changes), settings)
    assert found.level == level
    assert re.search(text, found.text), found.text
    assert found.to_dict() == {"level": level, "text": found.text}
