"""The formats: how each is written, and how its file is opened again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from rbprune.errors import ConfigError, ExportError, first_line
from rbprune.export.program import Program, for_export, silence
from rbprune.export.signature import Signature, flat_tensors
from rbprune.measure.runtimes import import_openvino, open_onnx, open_openvino
from rbprune.runs.folder import RunFolder
from rbprune.utils.inputs import call
from rbprune.utils.state import load_state

Format = Literal["onnx", "pt2", "openvino", "safetensors"]
FORMATS: tuple[Format, ...] = get_args(Format)
NAMES: dict[Format, str] = {
    "onnx": "model.onnx",
    "pt2": "model.pt2",
    "openvino": "openvino_model.xml",
    "safetensors": RunFolder("").weights_file.name,
}
"""The files as the Hugging Face hub and the libraries around it name them."""
INT8_NAMES: dict[Format, str] = {"onnx": "model_int8.onnx", "openvino": "openvino_model_int8.xml"}
"""The formats that can be quantised."""
Run = Callable[[Any], list[Tensor]]
"""Takes a batch of inputs as the network itself does, and gives the tensors of its outputs."""


def check_format(format: str, int8: bool) -> Format:
    """Refuse a format that is not known, or that has no int8."""
    if format not in FORMATS:
        raise ConfigError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    if int8 and format not in INT8_NAMES:
        raise ConfigError(f"int8 is for the formats {' and '.join(INT8_NAMES)}; {format} stays in float32")
    return format


def file_name(format: Format, int8: bool) -> str:
    """The name of a format's file in a folder.

    >>> file_name("onnx", True)
    'model_int8.onnx'
    """
    return INT8_NAMES[format] if int8 else NAMES[format]


def parts(file: Path) -> list[Path]:
    """A file and what belongs to it: OpenVINO keeps the weights in a second one."""
    return [file.with_suffix(".bin"), file] if file.suffix == ".xml" else [file]


def write_onnx(program: Program, file: Path) -> None:
    """Write ONNX by torch's exporter that is made for ``torch.export``, all in one file."""
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigError("writing ONNX needs onnxscript: pip install 'rbprune[onnx]'") from error
    try:
        with silence():
            made = torch.onnx.export(
                program.exported,
                dynamo=True,
                verbose=False,
                input_names=list(program.signature.inputs),
                output_names=list(program.signature.outputs),
            )
            assert made is not None
            made.save(str(file), external_data=False)
    except Exception as error:
        raise ExportError(
            f"torch cannot write this {type(program.model).__name__} as ONNX: {first_line(error)}; try --format pt2"
        ) from error


def write_pt2(program: Program, file: Path) -> None:
    """Write the program as ``torch.export.load`` reads it."""
    with silence():
        torch.export.save(program.exported, file)


def write_openvino(onnx: Path, file: Path) -> None:
    """Convert an ONNX file, quantised or not, to OpenVINO's two files, with float32 weights where they are floats."""
    runtime = import_openvino()
    try:
        with silence():
            runtime.save_model(runtime.convert_model(str(onnx)), str(file), compress_to_fp16=False)
    except Exception as error:
        raise ExportError(f"OpenVINO cannot convert this network: {first_line(error)}; try --format onnx") from error


def open_file(format: Format, file: Path, signature: Signature, model: nn.Module) -> Run:
    """Open a file of a format; ``model`` gives safetensors, which hold no program, a network to be loaded into."""
    if format == "pt2":
        with silence():
            loaded = torch.export.load(file).module()
        return lambda inputs: flat_tensors(call(loaded, inputs))
    if format == "safetensors":
        return _open_safetensors(file, model)
    run = open_onnx(file) if format == "onnx" else open_openvino(file)
    return lambda inputs: run(signature.tensors(inputs))


def _open_safetensors(file: Path, model: nn.Module) -> Run:
    empty = for_export(model)
    for tensor in empty.state_dict().values():
        if tensor.is_floating_point():
            tensor.fill_(torch.nan)  # so that nothing is right because it was right before
    load_state(empty, load_file(file))
    return lambda inputs: flat_tensors(call(empty, inputs))
