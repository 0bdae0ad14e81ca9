"""Runtimes other than PyTorch: opening a file of a network with ONNX Runtime or OpenVINO."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rbprune.errors import ConfigError

FlatCall = Callable[[Sequence[Tensor]], list[Tensor]]
"""Takes the tensors of a network's inputs in their order, and gives those of its outputs."""


def import_onnxruntime() -> Any:
    """ONNX Runtime, or how to get it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError("ONNX Runtime is not installed: pip install 'rbprune[onnx]'") from error
    return onnxruntime


def import_openvino() -> Any:
    """OpenVINO without its telemetry, or how to get it.

    OpenVINO reports to its makers when it is imported and when it converts a network. Nobody who exports a network with
    rbprune asked for that, so in this process it finds the package for it missing, which it is made for.
    """
    blocked = "openvino_telemetry" not in sys.modules
    if blocked:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # what makes an import fail
    try:
        import openvino
    except ImportError as error:
        raise ConfigError("OpenVINO is not installed: pip install 'rbprune[openvino]'") from error
    finally:
        if blocked:
            del sys.modules["openvino_telemetry"]
    return openvino


def open_onnx(file: Path | bytes, threads: int | None = None) -> FlatCall:
    """Open an ONNX file, or its content, on the CPU; ``threads`` are by default as many as torch uses."""
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads or torch.get_num_threads(), 1
    options.log_severity_level = 3
    content = file if isinstance(file, bytes) else str(file)
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]

    def run(tensors: Sequence[Tensor]) -> list[Tensor]:
        feed = {name: tensor.numpy(force=True) for name, tensor in zip(names, tensors, strict=True)}
        return [torch.from_numpy(value) for value in session.run(None, feed)]

    return run


@cache
def _openvino_core() -> Any:
    """OpenVINO's plugins, loaded once and kept.

    Its CPU plugin gives the thread that loads it an alternate stack for signals, and takes the memory away when it is
    unloaded: the next signal with a handler (SIGCHLD, once a DataLoader had workers) then ends the process.
    """
    return import_openvino().Core()


def open_openvino(file: Path, threads: int | None = None) -> FlatCall:
    """Open an OpenVINO file (.xml, with its .bin beside it) on the CPU, in float32 where it is not quantised."""
    options = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads or torch.get_num_threads(),
    }
    request = _openvino_core().compile_model(str(file), "CPU", options).create_infer_request()

    def run(tensors: Sequence[Tensor]) -> list[Tensor]:
        found = request.infer([tensor.numpy(force=True) for tensor in tensors], share_inputs=True)
        return [torch.from_numpy(value.copy()) for value in found.values()]

    return run
