"""``rbprune export``."""

from __future__ import annotations

from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from rbprune.cli.options import Input, Json, Set, Trust, sizes
from rbprune.errors import ConfigError
from rbprune.export.formats import Format
from rbprune.export.network import open_network
from rbprune.export.program import Batch
from rbprune.export.samples import samples_of
from rbprune.export.write import Exported, export_network
from rbprune.utils.numbers import decimal


def export(
    folder: Path,
    model: str | None = None,
    *,
    format: Annotated[Format, Parameter(help="the kind of file")],
    out: Annotated[Path, Parameter(help="a folder for the Hugging Face hub, or the file alone: FILE.onnx, ...")],
    int8: Annotated[bool, Parameter(negative=(), help="quantise, calibrated on training images")] = False,
    half: Annotated[bool, Parameter(negative=(), help="weights in 16 bits: safetensors half as large")] = False,
    batch: Annotated[str, Parameter(help="dynamic, or the one batch size that the file takes")] = "dynamic",
    license: Annotated[str | None, Parameter(help="of the weights, for the card: apache-2.0, ...")] = None,
    set: Set = [],  # noqa: B006
    input: Input = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Write a pruned network as ONNX, pt2, OpenVINO or safetensors, checked against PyTorch.

    The file appears only after it has passed. The check takes validation images of the run's data where they can be
    loaded, and random numbers otherwise.

    Parameters
    ----------
    folder
        A finished run, or a folder that this command wrote.
    model
        The model, if the folder names none that can be built: package.module:factory or path/file.py:factory.
    """
    size = _batch(batch)
    network = open_network(folder, model, set, trust=trust)
    network = network if license is None else replace(network, license=license)
    samples = samples_of(network, sizes(input), required=bool(set))
    exported = export_network(network, samples, out, format=format, int8=int8, half=half, batch=size)
    if json:
        print(dumps({"file": str(exported.file), **exported.as_dict()}, indent=2))
    else:
        for line in _lines(exported):
            Console().print(line, markup=False, highlight=False, soft_wrap=True)


def _batch(text: str) -> Batch:
    if text == "dynamic":
        return "dynamic"
    if not text.isdecimal():
        raise ConfigError(f"--batch is dynamic or a number such as 1; this is {text!r}")
    return int(text)


def _lines(exported: Exported) -> list[str]:
    rounded = [*(["16 bits"] if exported.half else []), *(["int8"] if exported.int8 else [])]
    kind = ", ".join([exported.format, *rounded, f"batch {exported.batch}"])
    lines = [f"{exported.file}  ({kind}, {decimal(exported.bytes / 1e6)} MB)"]
    if exported.int8:
        lines.append(f"calibrated on {exported.calibrated_on} training images")
    if exported.errors is not None:
        before, after = exported.errors["before"], exported.errors["after"]
        lines.append(
            f"error on the {exported.errors['data']}: {before:.2f} % in PyTorch, {after:.2f} % in {rounded[-1]}"
        )
    lines.append(f"differs from PyTorch by {exported.difference:.1e} of the largest output, on {exported.checked_on}")
    return lines
