"""How latencies are measured: turns, clocks, and what cannot be measured."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from rbprune.errors import ConfigError
from rbprune.measure.measuring import Measuring, fastest


def test_the_longer_call_takes_longer() -> None:
    times = fastest(
        {"short": lambda: time.sleep(0.001), "long": lambda: time.sleep(0.004)}, 5, lambda: None, time.perf_counter
    )
    assert 1000 <= times["short"] < 3900 and times["long"] >= 4000


def test_calls_take_turns_in_alternating_order() -> None:
    order: list[str] = []
    clock = iter(range(1000))
    calls = {name: lambda name=name: order.append(name) for name in "ab"}
    fastest(calls, 3, lambda: None, lambda: next(clock))
    firsts = [name for name, before in zip(order, ["", *order], strict=False) if name != before]
    assert "".join(firsts) == "babab", "b a, a b, b a, a b"
    assert order.count("a") == order.count("b") >= 8, "each call is made, and once more to warm up, in every round"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch": 0}, "batch is 0; it is at least 1"),
        ({"rounds": 1}, "rounds is 1; it is at least 3"),
        ({"clock": "cpu", "threads": 2, "device": "cpu"}, "one thread on a CPU; this is 2 on cpu"),
        ({"backend": "onnxruntime", "channels_last": True, "device": "cpu"}, "its own memory layout"),
    ],
)
def test_what_cannot_be_measured_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Measuring(**given).check()  # type: ignore[arg-type]


def test_precision_and_layout_are_those_asked_for() -> None:
    seen: list[torch.Tensor] = []

    class Note(nn.Conv2d):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x)
            return super().forward(x)

    how = Measuring(precision="bfloat16", channels_last=True, device="cpu")
    how.prepared(Note(3, 4, 1), torch.zeros(2, 3, 5, 5))()
    assert seen[0].dtype == torch.bfloat16 and seen[0].is_contiguous(memory_format=torch.channels_last)
    told = str(how.described(torch.device("cpu")))
    assert told.endswith("eager, batch 1, 1 thread, bfloat16, channels-last")
