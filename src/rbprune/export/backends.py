"""Networks on several backends, timed side by side: PyTorch as it is, compiled, ONNX Runtime, OpenVINO; int8 too."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.errors import ConfigError, nearest
from rbprune.export.formats import write_onnx, write_openvino
from rbprune.export.program import make_program
from rbprune.export.quantise import CALIBRATION_BATCH, quantise
from rbprune.measure.latency import Clock, Spread, borrowed, check_timing, clock_of, storage_bytes, times_of, timings_of
from rbprune.measure.machine import Machine, find_device, machine, synchroniser
from rbprune.measure.peak_memory import peak_bytes
from rbprune.measure.runtimes import FlatCall, import_onnxruntime, import_openvino, open_onnx, open_openvino

BACKENDS = ("eager", "compile", "onnxruntime", "openvino")
WITH_INT8 = ("onnxruntime", "openvino")


@dataclass(frozen=True)
class BackendTiming:
    """One network on one backend at one batch size."""

    backend: str
    int8: bool
    network: str
    batch: int
    ms: Spread
    ratio: Spread
    """The first network / this one on the same backend, round by round."""
    file_bytes: int
    """Of the file that the backend reads; for PyTorch of the weights."""
    peak_bytes: int | None
    """Weights and working memory at the peak of a pass (a runtime: from opening its file on); None where the system
    does not tell."""


@dataclass(frozen=True)
class BackendLatency:
    """The result of ``backend_latency``."""

    timings: list[BackendTiming]
    rounds: int
    clock: Clock
    channels_last: bool
    machine: Machine

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _Way:
    """A backend, in float32 or int8."""

    backend: str
    int8: bool = False


@dataclass
class _Ready:
    """A network on a backend, ready to be called with a batch."""

    call: Callable[[Tensor], Any]
    file_bytes: int
    reopen: Callable[[], FlatCall] | None = None
    """Opens the file again, where there is one."""

    def peak(self, x: Tensor, device: torch.device) -> int | None:
        if self.reopen is not None:
            reopen = self.reopen
            return peak_bytes(lambda: reopen()([x]), device)
        self.call(x)
        found = peak_bytes(lambda: self.call(x), device)
        return None if found is None else found + self.file_bytes


def backend_latency(
    networks: Mapping[str, nn.Module],
    shape: Sequence[int],
    *,
    backends: Sequence[str] = ("eager",),
    int8: bool = False,
    batches: Sequence[int] = (1, 32),
    device: str = "auto",
    rounds: int = 20,
    channels_last: bool = False,
    threads: int | None = None,
    clock: Clock = "wall",
) -> BackendLatency:
    """Time forward passes of ``networks`` on several backends, all in turns, on random examples of ``shape``.

    ``int8`` adds a quantised version for each backend that has one, calibrated on random examples: time does not depend
    on the values.
    """
    check_timing(networks, shape, batches, rounds, channels_last, threads)
    where, ways = find_device(device), _ways(backends, int8)
    clock_of(clock, where)
    _check(ways, where, channels_last)
    before, found = torch.get_num_threads(), []
    torch.set_num_threads(threads or before)
    try:
        with ExitStack() as stack, torch.inference_mode():
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rbprune-time-")))
            ready = _prepare(networks, shape, ways, place)
            for module in networks.values():
                stack.enter_context(borrowed(module, where, channels_last))
            on = machine(where)
            for batch in batches:
                x = torch.randn(batch, *shape, generator=torch.Generator().manual_seed(0)).to(where)
                x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
                found += _time_batch(ready, x, rounds, clock, where)
    finally:
        torch.set_num_threads(before)
    return BackendLatency(found, rounds, clock, channels_last, on)


def _ways(backends: Sequence[str], int8: bool) -> list[_Way]:
    for name in backends:
        if name not in BACKENDS:
            raise ConfigError(f"unknown backend {name!r}{nearest(name, BACKENDS)}; known are {', '.join(BACKENDS)}")
    ways = [way for name in dict.fromkeys(backends) for way in (_Way(name), *_quantised(name, int8))]
    if int8 and not any(way.int8 for way in ways):
        raise ConfigError(
            f"int8 is for the backends {' and '.join(WITH_INT8)}; this asks for {', '.join(backends)}: add --backend "
            "onnxruntime"
        )
    return ways


def _quantised(name: str, int8: bool) -> list[_Way]:
    return [_Way(name, True)] if int8 and name in WITH_INT8 else []


def _check(ways: Sequence[_Way], device: torch.device, channels_last: bool) -> None:
    """Refuse what a runtime does not do, and a runtime that is missing."""
    names = {way.backend for way in ways}
    for name in sorted(names & set(WITH_INT8)):
        if device.type != "cpu" or channels_last:
            layout = ", channels-last" if channels_last else ""
            raise ConfigError(f"{name} is timed on the CPU in its own memory layout; this asks for {device}{layout}")
    if "onnxruntime" in names or any(way.int8 for way in ways):
        import_onnxruntime()
    if "openvino" in names:
        import_openvino()


def _prepare(
    networks: Mapping[str, nn.Module], shape: Sequence[int], ways: Sequence[_Way], place: Path
) -> dict[tuple[_Way, str], _Ready]:
    ready = {}
    for number, (name, module) in enumerate(networks.items()):
        files = _files(module, shape, ways, place / str(number))
        for way in ways:
            if way.backend in WITH_INT8:
                ready[way, name] = _from_file(files[way], way.backend)
            else:
                ready[way, name] = _Ready(_in_torch(module, way.backend), storage_bytes(module))
    return ready


def _in_torch(module: nn.Module, backend: str) -> Callable[[Tensor], Any]:
    return torch.compile(module, dynamic=False) if backend == "compile" else module


def _from_file(file: Path, backend: str) -> _Ready:
    def reopen() -> FlatCall:
        return open_onnx(file) if backend == "onnxruntime" else open_openvino(file)

    run = reopen()
    size = file.stat().st_size + (file.with_suffix(".bin").stat().st_size if backend == "openvino" else 0)
    return _Ready(lambda x: run([x]), size, reopen)


@torch.inference_mode(False)
def _files(module: nn.Module, shape: Sequence[int], ways: Sequence[_Way], place: Path) -> dict[_Way, Path]:
    """The files of a network that the runtimes among ``ways`` read."""
    wanted = [way for way in ways if way.backend in WITH_INT8]
    if not wanted:
        return {}
    place.mkdir()
    example = torch.randn(CALIBRATION_BATCH, *shape, generator=torch.Generator().manual_seed(1))
    program = make_program(module, example)
    onnx = {False: place / "model.onnx", True: place / "model_int8.onnx"}
    write_onnx(program, onnx[False])
    if any(way.int8 for way in wanted):
        quantise(onnx[False], onnx[True], program.signature, "dynamic", [example])
    files = {}
    for way in wanted:
        files[way] = onnx[way.int8]
        if way.backend == "openvino":
            files[way] = onnx[way.int8].with_suffix(".xml")
            write_openvino(onnx[way.int8], files[way])
    return files


def _time_batch(
    ready: Mapping[tuple[_Way, str], _Ready], x: Tensor, rounds: int, clock: Clock, device: torch.device
) -> list[BackendTiming]:
    peaks = {key: each.peak(x, device) for key, each in ready.items()}
    calls = {str(number): _bound(each.call, x) for number, each in enumerate(ready.values())}
    times = times_of(calls, rounds, synchroniser(device), clock_of(clock, device))
    found, keys = [], list(ready)
    for way in dict.fromkeys(way for way, _ in keys):
        own = {name: times[str(keys.index((way, name)))] for each, name in keys if each == way}
        for timing in timings_of(len(x), own):
            key = (way, timing.network)
            each = (way.backend, way.int8, timing.network, len(x), timing.ms, timing.ratio)
            found.append(BackendTiming(*each, ready[key].file_bytes, peaks[key]))
    return found


def _bound(call: Callable[[Tensor], Any], x: Tensor) -> Callable[[], Any]:
    return lambda: call(x)
