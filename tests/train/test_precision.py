"""The arithmetic of a run: what is possible, what is chosen, what is told, and what a resumed run does."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rbprune.settings.recipe import build_settings, load_recipe, to_toml
from rbprune.settings.sections import RuntimeSettings
from rbprune.train import precision
from rbprune.train.engine import Engine
from rbprune.train.precision import Arithmetic, computes_bf16, decide_engine, fastest, possible
from tests.networks import stripes, tiny_cnn

PLAIN, LAST = Arithmetic("32-true", False), Arithmetic("32-true", True)
BF16, BF16_LAST = Arithmetic("bf16-mixed", False), Arithmetic("bf16-mixed", True)
ALL = [PLAIN, LAST, BF16, BF16_LAST]
LARGE = 2 * precision.SMALL_STEP


def on_cpu(**settings: Any) -> RuntimeSettings:
    return RuntimeSettings(accelerator="cpu", **settings)


def invent(monkeypatch: pytest.MonkeyPatch, seconds: dict[Arithmetic, float | None], *, bf16: bool = True) -> list[int]:
    """A machine on which steps take so many seconds; returns what grows by one with every measurement."""
    asked: list[int] = []

    def time_steps(model: Any, batch: Any, loss_fn: Any, modes: Any, engine: Any, *, macs: float) -> list[float | None]:
        asked.append(len(modes))
        return [seconds[next(a for a in ALL if (a.autocast, a.channels_last) == mode)] for mode in modes]

    monkeypatch.setattr(precision, "time_steps", time_steps)
    monkeypatch.setattr(precision, "computes_bf16", lambda device: bf16)
    return asked


def decide(settings: RuntimeSettings, *, macs: float = LARGE, model: nn.Module | None = None) -> Any:
    images, labels = stripes(4)
    return decide_engine(settings, model or tiny_cnn(), lambda: (images, labels), F.cross_entropy, macs=macs)


@pytest.mark.parametrize(
    ("settings", "bf16", "images", "wanted"),
    [
        ({}, True, True, [PLAIN, LAST, BF16, BF16_LAST]),
        ({}, False, True, [PLAIN, LAST]),
        ({}, True, False, [PLAIN, BF16]),
        ({}, False, False, [PLAIN]),
        ({"precision": "32-true"}, True, True, [PLAIN, LAST]),
        ({"precision": "bf16-mixed"}, False, True, [BF16, BF16_LAST]),
        ({"channels_last": True}, True, False, [LAST, BF16_LAST]),
        ({"channels_last": False}, False, True, [PLAIN]),
        ({"precision": "bf16-mixed", "channels_last": True}, False, False, [BF16_LAST]),
        ({"precision": "16-mixed", "channels_last": False}, True, True, [Arithmetic("16-mixed", False)]),
    ],
)
def test_what_is_set_is_obeyed_and_what_is_left_open_is_tried(
    settings: dict[str, Any], bf16: bool, images: bool, wanted: list[Arithmetic]
) -> None:
    assert possible(RuntimeSettings(**settings), bf16=bf16, images=images) == wanted


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        ([1.0], PLAIN),
        ([1.0, 0.95, 0.95, 0.95], PLAIN),
        ([1.0, 0.92, 3.0, 3.0], PLAIN),
        ([1.0, 0.9, 3.0, 3.0], LAST),
        ([1.0, 1.2, 0.6, 0.5], BF16_LAST),
        ([1.0, 0.8, 0.5, 0.51], BF16),
        ([1.0, 0.8, 0.7, 0.6], BF16_LAST),
        ([1.0, 0.8, 0.9, 0.76], LAST),
        ([1.0, 0.92, 0.88, 0.95], BF16),
    ],
)
def test_another_arithmetic_is_taken_where_it_is_a_tenth_faster(seconds: list[float], wanted: Arithmetic) -> None:
    """Also than the better layout of float32: bits are not given away for what a layout gains."""
    assert fastest(dict(zip(ALL, seconds, strict=False))) == wanted


def test_a_given_up_candidate_is_not_taken_and_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    invent(monkeypatch, {PLAIN: 1.0, LAST: 0.97, BF16: None, BF16_LAST: None})
    engine, choice = decide(on_cpu())
    assert choice.chosen == PLAIN
    assert choice.why == "nothing else is 10 % faster here: float32, channels-last 1.03x"
    assert (engine.settings.precision, engine.settings.channels_last) == ("32-true", False)


@pytest.mark.parametrize(
    ("settings", "bf16", "wanted", "why"),
    [
        ({}, False, LAST, "1.31x faster than contiguous here; bf16 is not computed by this processor"),
        ({}, True, BF16_LAST, "2.62x faster than float32, contiguous here"),
        ({"channels_last": True}, True, BF16_LAST, "2.00x faster than float32, channels-last here"),
        ({"precision": "32-true"}, True, LAST, "1.31x faster than contiguous here"),
    ],
)
def test_the_choice_says_why(
    settings: dict[str, Any], bf16: bool, wanted: Arithmetic, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    invent(monkeypatch, {PLAIN: 1.31, LAST: 1.0, BF16: 0.7, BF16_LAST: 0.5}, bf16=bf16)
    engine, choice = decide(on_cpu(**settings))
    assert (choice.chosen, choice.why, choice.warnings) == (wanted, why, ())
    assert engine.settings == on_cpu(precision=wanted.precision, channels_last=wanted.channels_last)
    assert engine.fabric._precision.precision == wanted.precision, "the engine computes in what was chosen"


@pytest.mark.parametrize(
    ("settings", "macs", "model", "wanted", "why"),
    [
        ({}, 0.29e9, tiny_cnn(), PLAIN, "a step of 0.29 GMACs is too small to gain from another"),
        ({"channels_last": True}, 0.29e9, tiny_cnn(), LAST, "a step of 0.29 GMACs is too small to gain from another"),
        ({"precision": "32-true", "channels_last": True}, LARGE, tiny_cnn(), LAST, "as set"),
        ({"channels_last": False}, LARGE, tiny_cnn(), PLAIN, "bf16 is not computed by this processor"),
        (
            {},
            LARGE,
            nn.Linear(4, 2),
            PLAIN,
            "bf16 is not computed by this processor; no weights for images, so nothing for channels-last",
        ),
    ],
)
def test_nothing_is_measured_where_there_is_nothing_to_gain_or_to_decide(
    settings: dict[str, Any],
    macs: float,
    model: nn.Module,
    wanted: Arithmetic,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = invent(monkeypatch, {}, bf16=False)
    engine, choice = decide(on_cpu(**settings), macs=macs, model=model)
    assert asked == []
    assert (choice.chosen, choice.why) == (wanted, why)
    assert (engine.settings.precision, engine.settings.channels_last) == (wanted.precision, wanted.channels_last)


def test_bf16_is_not_tried_on_weights_that_are_not_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning Fabric hands float32 to a network that computes mixed."""
    invent(monkeypatch, {PLAIN: 1.0, LAST: 0.5, BF16: 0.1, BF16_LAST: 0.1})
    _, choice = decide(on_cpu(), model=tiny_cnn().double())
    assert choice.chosen == LAST
    assert choice.why.endswith("; bf16 is for weights in float32, and these are in float64")


def test_a_step_that_fails_leaves_the_simplest_and_the_run_to_say_what_is_wrong() -> None:
    def broken(outputs: Any, targets: Any) -> Any:
        raise ValueError("not like this\nsecond line")

    images, labels = stripes(4)
    _, choice = decide_engine(on_cpu(), tiny_cnn(), lambda: (images, labels), broken, macs=LARGE)
    assert choice.chosen == PLAIN
    assert choice.why.split("; bf16 is not")[0] == "a training step could not be measured: ValueError: not like this"


@pytest.mark.parametrize("channels_last", [False, "auto"])
def test_bf16_is_obeyed_with_a_warning_where_it_is_not_computed(
    channels_last: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    invent(monkeypatch, {BF16: 1.0, BF16_LAST: 1.0}, bf16=False)
    engine, choice = decide(on_cpu(precision="bf16-mixed", channels_last=channels_last))
    assert engine.settings.precision == "bf16-mixed"
    (warning,) = choice.warnings
    assert "this processor does not compute bf16" in warning and "14 times slower" in warning
    assert 'runtime.precision = "auto"' in warning, "the remedy"
    invent(monkeypatch, {BF16: 1.0, BF16_LAST: 1.0})
    assert decide(on_cpu(precision="bf16-mixed", channels_last=channels_last))[1].warnings == ()


@pytest.mark.parametrize(
    ("has", "wanted"),
    [
        ({"architecture": "x86_64", "avx512_f": True, "avx512_bf16": True}, True),
        ({"architecture": "x86_64", "avx512_f": True, "amx_bf16": True}, True),
        ({"architecture": "x86_64", "avx512_f": True, "avx512_bf16": False}, False),
        ({"architecture": "aarch64", "bf16": True}, True),
        ({"architecture": "aarch64", "neon": True}, False),
    ],
)
def test_a_processor_computes_bf16_only_with_instructions_for_it(
    has: dict[str, Any], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has, raising=False)
    assert computes_bf16(torch.device("cpu")) is wanted


def test_what_emulates_bf16_does_not_compute_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert not computes_bf16(torch.device("cuda"))
    assert not computes_bf16(torch.device("mps"))


def test_the_choice_survives_being_written() -> None:
    for values in ({}, {"precision": "bf16-mixed", "channels_last": True}, {"channels_last": False}):
        settings = load_recipe("demo").model_copy(update={"runtime": RuntimeSettings(**values)})
        assert build_settings(tomllib.loads(to_toml(settings)), applied=True) == settings


def test_an_engine_that_was_told_nothing_computes_in_float32_and_leaves_the_layout() -> None:
    engine, model = Engine(on_cpu()), nn.Conv2d(3, 4, 3)
    engine.place(model)
    assert engine.fabric._precision.precision == "32-true"
    assert not model.weight.is_contiguous(memory_format=torch.channels_last)
    assert engine.put(torch.zeros(2, 3, 4, 4)).is_contiguous()
