"""``rbprune time``."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table

from rbprune import models
from rbprune.cli.count import Keep
from rbprune.cli.options import Input, Json, Trust, example, sizes
from rbprune.errors import ConfigError
from rbprune.export.backends import BackendLatency, BackendTiming, backend_latency
from rbprune.graph import trace
from rbprune.measure.latency import Clock, Latency, Spread, latency
from rbprune.runs.pair import Pair, kept_pair, run_pair
from rbprune.utils.numbers import DASH, decimal

DENSE, PRUNED = "dense", "pruned"


def time(
    model: str | None = None,
    *,
    keep: Keep = None,
    run: Annotated[
        Path | None, Parameter(help="a finished run folder: its dense network against its pruned one")
    ] = None,
    batch: Annotated[str, Parameter(help="batch sizes, separated by commas")] = "1,32",
    rounds: Annotated[int, Parameter(help="turns that each network gets")] = 20,
    device: Annotated[str, Parameter(help="auto, cpu, cuda or mps")] = "auto",
    threads: Annotated[int | None, Parameter(help="of the CPU; by default as many as torch uses")] = None,
    channels_last: Annotated[bool, Parameter(negative=(), help="channels-last memory layout")] = False,
    backend: Annotated[
        str, Parameter(help="eager, compile, onnxruntime, openvino; several separated by commas")
    ] = "eager",
    int8: Annotated[bool, Parameter(negative=(), help="also quantised to int8: onnxruntime, openvino")] = False,
    clock: Annotated[Clock, Parameter(help="wall, or cpu: CPU time of this process, for a machine in use")] = "wall",
    input: Input = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Time a network against its pruned self, in turns in one run: milliseconds, and their ratio.

    The pruned one is the same network cut to --keep widths, or that of a run folder; with neither, only the dense
    network is timed. Medians over the rounds, with quartiles in brackets. With --backend or --int8 the table has a row
    for each backend, and the size of its file and its peak memory.

    Parameters
    ----------
    model
        A zoo name (lenet5, resnet56-cifar, ...), torchvision:resnet50, timm:resnet18, package.module:factory or
        path/file.py:factory.
        With --run it is needed only if the run's config.toml names no such model.
    """
    pair, name = _pair(model, keep, run, input, trust), model
    if pair is not None:
        networks, shape, name = {DENSE: pair.dense, PRUNED: pair.pruned}, pair.shape, pair.name
    else:
        assert model is not None
        dense = models.build(model)
        x = example(model, dense, input)
        trace(dense, x)  # which explains an input that does not fit
        networks, shape = {DENSE: dense}, tuple(x.shape[1:])
    options: dict[str, Any] = {"batches": _batches(batch), "device": device, "rounds": rounds}
    options |= {"channels_last": channels_last, "threads": threads, "clock": clock}
    result: Latency | BackendLatency
    if backend == "eager" and not int8:
        result = latency(networks, shape, **options)
    else:
        result = backend_latency(networks, shape, backends=backend.split(","), int8=int8, **options)
    macs_ratio, title = None if pair is None else pair.macs_ratio, f"{name}, {'x'.join(map(str, shape))}"
    if json:
        print(dumps({"model": name, "input": list(shape), "macs_ratio": macs_ratio, **result.as_dict()}, indent=2))
    elif isinstance(result, Latency):
        _show(title, result, macs_ratio)
    else:
        _show_backends(title, result, macs_ratio)


def _pair(model: str | None, keep: str | None, run: Path | None, shape: str | None, trust: bool) -> Pair | None:
    if keep is not None and run is not None:
        raise ConfigError("--keep and --run both say what the pruned network is; give one of them")
    if run is not None:
        return run_pair(run, model, sizes(shape), trust=trust)
    if model is None:
        raise ConfigError("there is nothing to time; give a MODEL (with --keep to prune it), or --run DIR")
    return None if keep is None else kept_pair(model, keep, sizes(shape))


def _batches(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--batch takes batch sizes such as 1,32; this is {text!r}") from error


def _show(title: str, result: Latency, macs_ratio: float | None) -> None:
    table = Table(title=title)
    headings = ("batch", "dense ms", "pruned ms", "dense / pruned")
    for heading in headings if macs_ratio is not None else headings[:2]:
        table.add_column(heading, justify="right")
    for dense in (timing for timing in result.timings if timing.network == DENSE):
        cells = [str(dense.batch), _cell(dense.ms)]
        if macs_ratio is not None:
            pruned = result.at(PRUNED, dense.batch)
            cells += [_cell(pruned.ms), _cell(pruned.ratio, "x")]
        table.add_row(*cells)
    console = Console()
    console.print(table)
    stored = [f"{decimal(size / 1e6)} MB" for size in result.storage.values()]
    lines = [f"storage: {stored[0]}"]
    if macs_ratio is not None:
        lines = [
            f"storage: {stored[0]} -> {stored[1]}, {result.storage_ratio[PRUNED]:.2f}x",
            f"MACs: {macs_ratio:.2f}x",
        ]
    layout = ", channels-last" if result.channels_last else ""
    lines.append(f"on {result.machine}{layout}; {result.rounds} rounds, {result.clock} time, medians (quartiles)")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _show_backends(title: str, result: BackendLatency, macs_ratio: float | None) -> None:
    headings = ("backend", "batch", "dense ms", "pruned ms", "ratio", "file MB", "peak MB")
    shown = headings if macs_ratio is not None else tuple(h for h in headings if h not in ("pruned ms", "ratio"))
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in shown:
        table.add_column(heading, justify="left" if heading == "backend" else "right", no_wrap="MB" not in heading)
    rows: dict[tuple[str, bool, int], list[BackendTiming]] = {}
    for timing in result.timings:
        rows.setdefault((timing.backend, timing.int8, timing.batch), []).append(timing)
    for (backend, int8, batch), networks in rows.items():
        times = [f"{each.ms.median:.3g}" for each in networks]
        speed = [f"{each.ratio.median:.2f}x" for each in networks[1:]]
        files, peaks = ([_megabytes(getattr(each, f"{key}_bytes")) for each in networks] for key in ("file", "peak"))
        label = f"{backend}{' int8' if int8 else ''}"
        table.add_row(label, str(batch), *times, *speed, " -> ".join(files), " -> ".join(peaks))
    console = Console()
    console.print(table)
    lines = [] if macs_ratio is None else [f"MACs: {macs_ratio:.2f}x"]
    lines.append(f"on {result.machine}; {result.rounds} rounds, {result.clock} time, medians (--json: quartiles)")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _megabytes(size: int | None) -> str:
    return DASH if size is None else f"{size / 1e6:.3g}"


def _cell(spread: Spread, unit: str = "") -> str:
    median, low, high = (f"{v:.0f}" if v >= 1000 else f"{v:.3g}" for v in (spread.median, spread.low, spread.high))
    return f"{median}{unit} ({low} to {high})"
