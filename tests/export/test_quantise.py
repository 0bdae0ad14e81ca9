"""The calibration of int8. What int8 does to a network is tested with whole exports in test_write.py."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from rbprune.errors import ConfigError
from rbprune.export.quantise import CALIBRATION_IMAGES, quantise
from rbprune.export.signature import Signature
from rbprune.measure.runtimes import open_onnx


def product(file: Path, weight: torch.Tensor, batch: int | str = "n") -> Path:
    """An ONNX file that multiplies its input by a matrix."""
    constant = numpy_helper.from_array(weight.numpy(), "w")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, weight.shape[0]])
    made = helper.make_tensor_value_info("output", TensorProto.FLOAT, [batch, weight.shape[1]])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["output"], "m")], "g", [given], [made], [constant]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), file)
    return file


def test_every_column_has_a_scale_of_its_own(tmp_path: Path) -> None:
    """With one scale for all columns those of small weights would be 0."""
    torch.manual_seed(0)
    weight = torch.randn(16, 4) * torch.tensor([1.0, 1e-2, 1e-4, 1e-6])
    x = torch.randn(64, 16)
    count = quantise(
        product(tmp_path / "f.onnx", weight), tmp_path / "q.onnx", Signature(("x",), ("output",)), "dynamic", [x]
    )
    assert count == 64
    scale = (x @ weight).abs().amax(0)
    stored = [numpy_helper.to_array(t).dtype for t in onnx.load(tmp_path / "q.onnx").graph.initializer]
    assert "int8" in [str(dtype) for dtype in stored]
    integers = next(
        numpy_helper.to_array(t) for t in onnx.load(tmp_path / "q.onnx").graph.initializer if t.dims == [16, 4]
    )
    assert (abs(integers).max(0) >= 126).all()
    assert ((open_onnx(tmp_path / "q.onnx")([x])[0] - x @ weight).abs() / scale).max(0).values[0] < 0.05
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.onnx", "q.onnx"]


def test_a_file_of_one_batch_size_is_calibrated_in_whole_batches(tmp_path: Path) -> None:
    file = product(tmp_path / "f.onnx", torch.randn(3, 2), batch=4)
    signature = Signature(("x",), ("output",))
    assert quantise(file, tmp_path / "q.onnx", signature, 4, [torch.randn(10, 3)]) == 10


def test_calibration_ends_when_there_are_enough_examples(tmp_path: Path) -> None:
    file, seen = product(tmp_path / "f.onnx", torch.randn(3, 2)), 0

    def endless():  # type: ignore[no-untyped-def]
        nonlocal seen
        while True:
            seen += 100
            yield torch.randn(100, 3)

    assert (
        quantise(file, tmp_path / "q.onnx", Signature(("x",), ("output",)), "dynamic", endless()) >= CALIBRATION_IMAGES
    )
    assert seen <= CALIBRATION_IMAGES + 200


def test_no_training_images_is_named(tmp_path: Path) -> None:
    file = product(tmp_path / "f.onnx", torch.randn(3, 2))
    with pytest.raises(ConfigError, match="int8 is calibrated on training images, and the data holds none"):
        quantise(file, tmp_path / "q.onnx", Signature(("x",), ("output",)), "dynamic", [])
