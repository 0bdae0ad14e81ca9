"""In which precision and memory layout a run computes: as set, or by measurement where the settings say "auto"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
from torch import nn

from rbprune.graph import ChannelGraph
from rbprune.graph.cost import MACS
from rbprune.pruner import Loss
from rbprune.settings.sections import Precision, RuntimeSettings, Settings
from rbprune.train.engine import Engine
from rbprune.train.phase import Phase
from rbprune.train.state import RunData
from rbprune.train.step_time import time_steps
from rbprune.train.stream import Batch, first_batch
from rbprune.utils.seeds import mix

SMALL_STEP = 1e9
"""MACs of a forward pass below which nothing is measured: such a step gains nothing, and stays exactly repeatable."""
WORTH = 1.1
"""How many times faster another arithmetic must be to be taken."""
SLOWER_WITHOUT_BF16 = 14
"""How many times slower ResNet-20 trained in bf16 on a processor that does not compute it."""
_NAMES: dict[Precision, str] = {"32-true": "float32", "bf16-mixed": "bf16", "16-mixed": "float16"}
_TYPES: dict[Precision, torch.dtype | None] = {
    "32-true": None,
    "bf16-mixed": torch.bfloat16,
    "16-mixed": torch.float16,
}
_X86_BF16, _ARM_BF16 = ("avx512_bf16", "amx_bf16"), ("bf16",)


@dataclass(frozen=True)
class Arithmetic:
    """A precision and a memory layout.

    >>> str(Arithmetic("32-true", True))
    'float32, channels-last'
    """

    precision: Precision
    channels_last: bool

    def __str__(self) -> str:
        return f"{_NAMES[self.precision]}, {'channels-last' if self.channels_last else 'contiguous'}"

    @property
    def autocast(self) -> torch.dtype | None:
        """The type of mixed precision, where it is mixed."""
        return _TYPES[self.precision]


@dataclass(frozen=True)
class ArithmeticChoice:
    """What a run computes in, and why; ``seconds`` are those of a training step, where they were measured."""

    chosen: Arithmetic
    why: str
    seconds: Mapping[Arithmetic, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    """What is to be said of it where it may be a mistake."""

    def told(self) -> dict[str, Any]:
        """What the journal of a run is told."""
        return {
            "arithmetic": str(self.chosen),
            "precision": self.chosen.precision,
            "channels_last": self.chosen.channels_last,
            "why": self.why,
            "step_seconds": {str(option): seconds for option, seconds in self.seconds.items()},
            "warnings": self.warnings,
        }


def start_engine(
    settings: Settings, phases: Sequence[Phase], model: nn.Module, graph: ChannelGraph, data: RunData, loss_fn: Loss
) -> tuple[Engine, ArithmeticChoice]:
    """Make the engine of a run; what its settings leave to measurement is decided by the first batch of the run."""
    batch_size = phases[0].optim.batch_size if phases else settings.prune.batch_size
    epoch = mix(phases[0].salt, 0) if phases else 0
    stream = data.train(batch_size)
    macs = MACS.total(graph) * stream.size / stream.steps
    return decide_engine(settings.runtime, model, lambda: first_batch(stream, epoch), loss_fn, macs=macs)


def decide_engine(
    settings: RuntimeSettings, model: nn.Module, batch: Callable[[], Batch], loss_fn: Loss, *, macs: float
) -> tuple[Engine, ArithmeticChoice]:
    """Make an engine whose settings hold a decision for everything that was left to measurement.

    The model stays as it is, bit for bit. ``batch`` gives one to train on and is asked only if there is something to
    measure; ``macs`` are those of its forward pass through the dense network. Several processes choose the same: the
    first one measures and tells the others.
    """
    engine = Engine(settings)
    computed = not engine.any(not computes_bf16(engine.fabric.device))
    missing = _why_no_bf16(settings, computed, engine.fabric.device, model)
    options = possible(settings, bf16=missing is None, images=any(p.dim() == 4 for p in model.parameters()))
    why, chosen = _why_not_measured(settings, options, macs, missing), options[0]
    seconds: dict[Arithmetic, float] = {}
    if why is None:
        why = "as the first process chose"
        if engine.main:
            with engine.threads():
                seconds, why = _measure(options, engine, model, batch, loss_fn, macs)
            chosen = fastest(seconds) if seconds else chosen
            why = "; ".join(filter(None, (why, missing)))
        chosen = options[engine.of_main(options.index(chosen))]
    decided = {"precision": chosen.precision, "channels_last": chosen.channels_last}
    choice = ArithmeticChoice(chosen, why, seconds, _warnings(settings, computed, engine.fabric.device))
    settings = settings.model_copy(update=decided)
    return engine if settings == engine.settings else Engine(settings), choice


def computes_bf16(device: torch.device) -> bool:
    """Whether the device has instructions for bf16; where they are emulated, they are slower than float32.

    torch's own question to oneDNN (``_is_mkldnn_bf16_supported``) is not asked, because it also says yes to processors
    with AVX-512 that only emulate bf16.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    if not hasattr(torch.cpu, "get_capabilities"):  # an older torch
        return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)())
    has = torch.cpu.get_capabilities()
    names = _X86_BF16 if str(has.get("architecture", "")).startswith("x86") else _ARM_BF16
    return any(bool(has.get(name)) for name in names)


def possible(settings: RuntimeSettings, *, bf16: bool, images: bool) -> list[Arithmetic]:
    """The candidates that the settings leave, the simplest first.

    ``bf16``: whether it may be tried; ``images``: whether the network has weights for images, which alone have a
    channels-last layout.

    >>> [str(one) for one in possible(RuntimeSettings(), bf16=False, images=True)]
    ['float32, contiguous', 'float32, channels-last']
    """
    precisions: Sequence[Precision] = ("32-true", "bf16-mixed") if bf16 else ("32-true",)
    layouts: Sequence[bool] = (False, True) if images else (False,)
    if settings.precision != "auto":
        precisions = (settings.precision,)
    if settings.channels_last != "auto":
        layouts = (settings.channels_last,)
    return [Arithmetic(precision, layout) for precision, layout in product(precisions, layouts)]


def fastest(seconds: Mapping[Arithmetic, float]) -> Arithmetic:
    """The fastest of those that were measured, if it is worth it; they come with the simplest first.

    Another layout than the first must be worth leaving it, and another precision must be worth it beside the layout
    that the precision before it would take: bits are not given away for what a layout gains.

    >>> plain, other = Arithmetic("32-true", False), Arithmetic("32-true", True)
    >>> fastest({plain: 1.0, other: 0.95}) == plain, fastest({plain: 1.0, other: 0.8}) == other
    (True, True)
    """
    chosen = next(iter(seconds))
    for precision in dict.fromkeys(option.precision for option in seconds):
        best = min((option for option in seconds if option.precision == precision), key=seconds.__getitem__)
        if seconds[chosen] >= WORTH * seconds[best]:
            chosen = best
    return chosen


def _why_not_measured(
    settings: RuntimeSettings, options: list[Arithmetic], macs: float, missing: str | None
) -> str | None:
    """Why the first candidate is taken without a measurement; None where there has to be one."""
    if "auto" not in (settings.precision, settings.channels_last):
        return "as set"
    if macs < SMALL_STEP:
        return f"a step of {macs / 1e9:.2g} GMACs is too small to gain from another"
    if len(options) == 1:
        layout = "no weights for images, so nothing for channels-last" if settings.channels_last == "auto" else None
        return "; ".join(filter(None, (missing, layout)))
    return None


def _measure(
    options: list[Arithmetic], engine: Engine, model: nn.Module, batch: Callable[[], Batch], loss_fn: Loss, macs: float
) -> tuple[dict[Arithmetic, float], str]:
    """The seconds of a real training step in what can be measured, and what there is to tell of them.

    Whatever a user's network, loss and data raise ends here, since trying another arithmetic must not end a run: the
    run itself tells what is wrong.
    """
    modes = [(option.autocast, option.channels_last) for option in options]
    try:
        times = time_steps(model, batch, loss_fn, modes, engine, macs=macs)
    except Exception as error:
        return {}, f"a training step could not be measured: {type(error).__name__}: {error}".splitlines()[0]
    seconds = {option: time for option, time in zip(options, times, strict=True) if time is not None}
    return seconds, _told(seconds, fastest(seconds))


def _told(seconds: Mapping[Arithmetic, float], chosen: Arithmetic) -> str:
    plain, *rest = seconds
    if chosen != plain:
        other = "contiguous" if chosen.precision == plain.precision else str(plain)
        return f"{seconds[plain] / seconds[chosen]:.2f}x faster than {other} here"
    speeds = [f"{other} {seconds[plain] / seconds[other]:.2f}x" for other in rest]
    return f"nothing else is {round(100 * (WORTH - 1))} % faster here{': ' * bool(speeds)}{'; '.join(speeds)}"


def _why_no_bf16(settings: RuntimeSettings, computed: bool, device: torch.device, model: nn.Module) -> str | None:
    """Why bf16 is no candidate where the precision is left open; None where it is one, or where nobody asked."""
    if settings.precision != "auto":
        return None
    if device.type not in ("cpu", "cuda"):
        return f"bf16 is not tried on {device.type}"
    if not computed:
        return "bf16 is not computed by this processor"
    other = next((p.dtype for p in model.parameters() if p.is_floating_point() and p.dtype != torch.float32), None)
    return None if other is None else f"bf16 is for weights in float32, and these are in {str(other).split('.')[-1]}"


def _warnings(settings: RuntimeSettings, computed: bool, device: torch.device) -> tuple[str, ...]:
    """What is to be said of a precision that is obeyed although it may be a mistake."""
    if settings.precision != "bf16-mixed" or computed or device.type != "cpu":
        return ()
    text = (
        'runtime.precision = "bf16-mixed", and this processor does not compute bf16: training may be '
        f'{SLOWER_WITHOUT_BF16} times slower than in float32; runtime.precision = "auto" takes what is fast here'
    )
    return (text,)
