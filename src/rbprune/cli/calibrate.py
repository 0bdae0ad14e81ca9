"""``rbprune calibrate``."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

from rbprune import models
from rbprune.cli.options import Input, Json, example
from rbprune.errors import ConfigError
from rbprune.measure.backend import Backend
from rbprune.measure.calibrate import calibrate as measure_table
from rbprune.measure.calibrate import told
from rbprune.measure.latency import Clock
from rbprune.measure.measuring import Measuring


def calibrate(
    model: str,
    *,
    out: Annotated[Path, Parameter(help="the table, a JSON file; one that is there is replaced")],
    batch: Annotated[int, Parameter(help="examples in a forward pass")] = 1,
    backend: Annotated[
        Backend, Parameter(help="what runs the network: eager, compile (torch) or onnxruntime")
    ] = "eager",
    threads: Annotated[int, Parameter(help="of the CPU")] = 1,
    precision: Annotated[Literal["float32", "bfloat16"], Parameter(help="float32 or bfloat16")] = "float32",
    channels_last: Annotated[bool, Parameter(negative=(), help="channels-last memory layout")] = False,
    device: Annotated[str, Parameter(help="auto, cpu, cuda or mps")] = "auto",
    points: Annotated[int, Parameter(help="widths of a layer on each axis, about; more is finer and longer")] = 6,
    rounds: Annotated[int, Parameter(help="turns that each measurement gets")] = 15,
    clock: Annotated[Clock, Parameter(help="wall, or cpu: CPU time of this process, for a machine in use")] = "wall",
    input: Input = None,
    json: Json = False,
) -> None:
    """Measure what the layers of a network take on this device at many widths: latency as a cost.

    The file is for prune.latency, beside prune.latency_ratio, prune.price.nats_per_us or prune.round_to = "device"; it
    can be carried to another machine. The weights do not matter. At the end whole networks of other widths tell how
    good it is.

    Parameters
    ----------
    model
        A zoo name (lenet5, resnet56-cifar, ...), torchvision:resnet50, timm:resnet18, package.module:factory or
        path/file.py:factory.
    """
    if not out.parent.is_dir():
        raise ConfigError(f"--out is {str(out)!r}, and there is no folder {str(out.parent)!r}; make it first")
    network = models.build(model)
    how = Measuring(
        batch=batch,
        backend=backend,
        threads=threads,
        precision=precision,
        channels_last=channels_last,
        device=device,
        points=points,
        rounds=rounds,
        clock=clock,
    )
    console = Console(stderr=True)
    table = measure_table(
        network,
        example(model, network, input),
        model,
        how,
        say=lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True),
    )
    table.save(out)
    if json:
        print(dumps({"step": table.step, "checks": [check.model_dump() for check in table.checks]}, indent=2))
        return
    shown = Console()
    lines = [*told(table), f"widths are best multiples of {table.step} on {table.on}", f"table: {out}"]
    for line in lines:
        shown.print(line, markup=False, highlight=False, soft_wrap=True)
