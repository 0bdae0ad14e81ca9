"""Static quantisation to int8 by ONNX Runtime: weights per channel, activations by what training images need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rbprune.errors import ConfigError, ExportError, RbpruneError, first_line
from rbprune.export.program import Batch, on_cpu, silence
from rbprune.export.signature import Signature, batch_size, pieces
from rbprune.measure.runtimes import import_onnxruntime

CALIBRATION_IMAGES = 256
"""Training images that the ranges of the activations are taken from."""
CALIBRATION_BATCH = 32


def quantise(onnx: Path, file: Path, signature: Signature, batch: Batch, calibration: Iterable[Any]) -> int:
    """Write ``onnx`` with int8 weights and activations, and return how many examples it was calibrated on.

    The file holds pairs of QuantizeLinear and DequantizeLinear, which other runtimes understand too. A file of one
    batch size is calibrated with whole batches of it.
    """
    import_onnxruntime()
    try:
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.shape_inference import quant_pre_process
    except ImportError as error:
        raise ConfigError("int8 needs the package onnx: pip install 'rbprune[onnx]'") from error
    feeds = _Feeds(signature, batch, calibration)
    prepared = file.with_name("prepared.onnx")
    try:
        with silence():
            quant_pre_process(str(onnx), str(prepared), skip_symbolic_shape=True)
            quantize_static(
                str(prepared),
                str(file),
                feeds,
                quant_format=QuantFormat.QDQ,
                per_channel=True,
                activation_type=QuantType.QInt8,
                weight_type=QuantType.QInt8,
            )
    except RbpruneError:
        raise
    except Exception as error:
        if not feeds.count:
            raise ConfigError(
                "int8 is calibrated on training images, and the data holds none; check data.path"
            ) from error
        raise ExportError(
            f"ONNX Runtime cannot quantise this network: {first_line(error)}; export without --int8"
        ) from error
    finally:
        prepared.unlink(missing_ok=True)
    return feeds.count


class _Feeds:
    """The calibration as ONNX Runtime asks for it: one batch after the other, then None."""

    def __init__(self, signature: Signature, batch: Batch, calibration: Iterable[Any]) -> None:
        self.count = 0
        self._feeds = self._make(signature, batch, calibration)

    def _make(self, signature: Signature, batch: Batch, calibration: Iterable[Any]) -> Iterator[dict[str, Any]]:
        for inputs in calibration:
            if self.count >= CALIBRATION_IMAGES:
                return
            inputs = on_cpu(inputs)
            size = batch_size(inputs)
            for piece, count in pieces(inputs, size if batch == "dynamic" else batch):
                tensors = zip(signature.inputs, signature.tensors(piece), strict=True)
                yield {name: tensor.numpy(force=True) for name, tensor in tensors}
                self.count += count

    def get_next(self) -> dict[str, Any] | None:
        """The next batch, by names of inputs."""
        return next(self._feeds, None)
