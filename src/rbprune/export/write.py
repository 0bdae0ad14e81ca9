"""Exporting: a file is written under a temporary name, checked against the network, and then gets its own name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from rbprune.errors import ConfigError
from rbprune.export.bundle import Bundle
from rbprune.export.check import check_file, difference, errors, in_batches, runs_of
from rbprune.export.formats import (
    NAMES,
    Format,
    Run,
    check_format,
    file_name,
    open_file,
    parts,
    write_onnx,
    write_openvino,
    write_pt2,
)
from rbprune.export.network import PrunedNetwork
from rbprune.export.program import Batch, Program, for_export, make_program, on_cpu
from rbprune.export.quantise import quantise
from rbprune.export.samples import Samples
from rbprune.export.signature import Signature, with_batch
from rbprune.export.staging import publish, staging
from rbprune.measure.runtimes import import_onnxruntime, import_openvino


@dataclass(frozen=True)
class Exported:
    """A file that was written, and what the check of it found."""

    file: Path
    format: Format
    batch: Batch
    bytes: int
    difference: float
    """From the PyTorch network, relative to the largest value of an output."""
    checked_on: str
    calibrated_on: int | None = None
    """Training examples behind the ranges of an int8 file; None for float32."""
    errors: Mapping[str, Any] | None = None
    """Where weights were rounded: top-1 error in per cent of the PyTorch network (``before``) and of the file
    (``after``), and the ``data`` it was counted on; None where this is no classification, or no data was given."""
    half: bool = False
    """Whether the weights were rounded to 16 bits."""

    @property
    def int8(self) -> bool:
        """Whether the file is quantised."""
        return self.calibrated_on is not None

    def as_dict(self) -> dict[str, Any]:
        """What ``config.json`` and ``--json`` say of the file."""
        told: dict[str, Any] = {"format": self.format, "int8": self.int8, "batch": self.batch, "bytes": self.bytes}
        told |= {"difference": self.difference, "checked_on": self.checked_on}
        told |= {"half": True} if self.half else {}
        told |= {"calibrated_on": self.calibrated_on} if self.int8 else {}
        return told | ({"errors": self.errors} if self.int8 or self.half else {})


def export_network(
    network: PrunedNetwork,
    samples: Samples,
    out: str | Path,
    *,
    format: str,
    int8: bool = False,
    half: bool = False,
    batch: Batch = "dynamic",
) -> Exported:
    """Write ``network`` to ``out``: a folder for the Hugging Face hub, or, with the format's suffix, the file alone.

    ``int8`` quantises; ``half`` rounds kernels and matrices to 16 bits, which makes safetensors half as large.

    Nothing appears under its final name before the file has been opened by its own runtime and has computed what the
    network computes.
    """
    chosen, out = check_format(format, int8), Path(out)
    if batch != "dynamic" and batch < 1:
        raise ConfigError(f"batch is a number from 1 on, or dynamic; got {batch}")
    _check_runtimes(chosen, int8)
    if int8:
        samples.calibrate()  # which says so where there is nothing to calibrate on
    alone = out.suffix == Path(NAMES[chosen]).suffix
    if alone and (taken := [path for path in parts(out) if path.exists()]):
        raise ConfigError(f"{taken[0]} exists; remove it, or choose another --out")
    whole, network = network, network.halved() if half else network
    bundle = None if alone else Bundle(out, network)
    with staging(out.parent if alone else out) as place:
        staged = place / (out.name if alone else file_name(chosen, int8))
        exported, signature = _Attempt(network, whole, samples, staged, chosen, int8, batch).write_and_check()
        for part in parts(staged):
            publish(part, (out.parent if alone else out) / part.name)
    final = out if alone else out / staged.name
    found = Exported(**{**vars(exported), "file": final})
    if bundle is not None:
        bundle.complete(found.file.name, found.as_dict(), signature)
    return found


def _check_runtimes(format: Format, int8: bool) -> None:
    """Refuse at once what would fail after minutes because a package is missing."""
    if format == "onnx" or int8:
        import_onnxruntime()
    if format == "openvino":
        import_openvino()


@dataclass(frozen=True)
class _Attempt:
    """A file that is to be written under a temporary name."""

    network: PrunedNetwork
    whole: PrunedNetwork
    """The network before its weights were rounded to 16 bits, if they are."""
    samples: Samples
    staged: Path
    format: Format
    int8: bool
    batch: Batch

    @property
    def name(self) -> str:
        """What errors call it."""
        return f"the {'int8 ' if self.int8 else ''}{self.format} file"

    def write_and_check(self) -> tuple[Exported, Signature | None]:
        """Write the network, and compare the file with it; where something was rounded, then also with the whole
        one."""
        if self.format == "safetensors":
            save_file(self.network.stored_tensors(), self.staged)
            model, signature = for_export(self.network.model), Signature((), ())
            program = None
        else:
            program = make_program(self.network.model, self.samples.inputs, self.batch)
            model, signature = program.model, program.signature
            _write(program, self.format, self.staged)
        run = open_file(self.format, self.staged, signature, model)
        worst = check_file(run, model, self.samples.inputs, self.batch, self.name)
        calibrated, before_after = None, None
        if self.int8 and program is not None:
            del run  # the runtime may hold the file open
            calibrated = _quantise(program, self.samples, self.staged, self.format)
            run = open_file(self.format, self.staged, signature, model)
        if self.int8 or self.network.half:
            worst, before_after = self._what_rounding_did(run)
        on_disk = sum(part.stat().st_size for part in parts(self.staged))
        checked = (on_disk, worst, self.samples.origin, calibrated, before_after, self.network.half)
        return Exported(self.staged, self.format, self.batch, *checked), None if program is None else signature

    def _what_rounding_did(self, run: Run) -> tuple[float, dict[str, Any] | None]:
        """The largest difference from the whole network, and the errors of both where there is data to count on."""
        original, inputs = runs_of(for_export(self.whole.model)), on_cpu(self.samples.inputs)
        size = inputs if self.batch == "dynamic" else with_batch(inputs, self.batch)
        worst = difference(run(size), original(size), self.name)
        if self.samples.held_out is None:
            return worst, None
        found = errors([original, in_batches(run, self.batch)], self.samples.held_out())
        names = {"data": self.samples.held_out_name}
        return worst, None if found is None else {"before": found[0], "after": found[1], **names}


def _write(program: Program, format: Format, staged: Path) -> None:
    if format == "pt2":
        write_pt2(program, staged)
    elif format == "onnx":
        write_onnx(program, staged)
    else:
        onnx = staged.with_name("float.onnx")
        write_onnx(program, onnx)
        write_openvino(onnx, staged)


def _quantise(program: Program, samples: Samples, staged: Path, format: Format) -> int:
    """Put the int8 network in the place of the float32 one, which has passed its check."""
    onnx = staged if format == "onnx" else staged.with_name("float.onnx")
    quantised = staged.with_name("int8.onnx")
    count = quantise(onnx, quantised, program.signature, program.batch, samples.calibrate())
    if format == "onnx":
        quantised.replace(staged)
    else:
        write_openvino(quantised, staged)
    return count
