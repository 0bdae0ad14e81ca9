"""Ways to run a network for its latency: as it is, compiled by torch, or by ONNX Runtime."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from rbprune.errors import ConfigError, ModelError, first_line
from rbprune.measure.runtimes import import_onnxruntime

Backend = Literal["eager", "compile", "onnxruntime"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)


def check_backend(backend: str, device: torch.device, precision: str, channels_last: bool) -> None:
    """Refuse what a backend does not do, before hours of measuring."""
    if backend not in BACKENDS:
        raise ConfigError(f"unknown backend {backend!r}; known are {', '.join(BACKENDS)}")
    if backend == "onnxruntime":
        if device.type != "cpu" or precision != "float32" or channels_last:
            raise ConfigError(
                f"onnxruntime is measured on the CPU, in float32 and its own memory layout; this asks for "
                f"{device.type}, {precision}{', channels-last' if channels_last else ''}: take --backend eager or "
                "compile for that"
            )
        import_onnxruntime()


def runnable(module: nn.Module, x: Tensor, backend: Backend = "eager", threads: int = 1) -> Callable[[], Any]:
    """A call without arguments that runs ``module``, in evaluation mode, on ``x``.

    >>> runnable(nn.Linear(2, 3).eval(), torch.zeros(1, 2))().shape
    torch.Size([1, 3])
    """
    if backend == "onnxruntime":
        return _onnxruntime_call(module, x, threads)
    if backend == "compile":
        torch._dynamo.reset()  # its cache of shapes would else make the widths dynamic, which is another program
        compiled = torch.compile(module, dynamic=False)
        compiled(x)
        return lambda: compiled(x)
    return lambda: module(x)


def to_onnx(module: nn.Module, x: Tensor) -> bytes:
    """The module as ONNX, batch normalisation folded.

    By torch's older exporter, which is twenty times as fast as the new one and needs no other package: a calibration
    exports thousands of layers.
    """
    buffer, before = io.BytesIO(), logging.root.manager.disable
    try:
        logging.disable(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, (x,), buffer, dynamo=False)  # type: ignore[arg-type]
    except Exception as error:
        raise ModelError(
            f"{type(module).__name__} cannot be exported to ONNX: {first_line(error)}; use --backend eager or compile"
        ) from error
    finally:
        logging.disable(before)
    return buffer.getvalue()


def _onnxruntime_call(module: nn.Module, x: Tensor, threads: int) -> Callable[[], Any]:
    runtime = import_onnxruntime()
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(to_onnx(module, x), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, feed)
