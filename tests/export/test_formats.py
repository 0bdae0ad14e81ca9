"""Formats by name. How they are written and opened is tested with whole exports in test_write.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from rbprune.errors import ConfigError
from rbprune.export.formats import FORMATS, check_format, file_name, open_file, parts
from rbprune.export.signature import Signature


def test_unknown_formats_and_int8_of_the_wrong_ones_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown format 'tflite'; known are onnx, pt2, openvino, safetensors"):
        check_format("tflite", False)
    for format in ("pt2", "safetensors"):
        with pytest.raises(ConfigError, match=f"int8 is for the formats onnx and openvino; {format} stays in float32"):
            check_format(format, True)
    assert check_format("openvino", True) == "openvino"


def test_file_names_are_those_of_the_hub() -> None:
    assert [file_name(format, False) for format in FORMATS] == [
        "model.onnx",
        "model.pt2",
        "openvino_model.xml",
        "model.safetensors",
    ]
    assert [part.name for part in parts(Path("a/openvino_model.xml"))] == ["openvino_model.bin", "openvino_model.xml"]


def test_safetensors_are_checked_by_what_the_file_holds(tmp_path: Path) -> None:
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    save_file({name: each.detach() for name, each in model.named_parameters()}, tmp_path / "right")
    run = open_file("safetensors", tmp_path / "right", Signature((), ()), model)
    assert torch.equal(run(x)[0], model(x))
    save_file({"weight": model.weight.detach() + 1, "bias": model.bias.detach()}, tmp_path / "wrong")
    run = open_file("safetensors", tmp_path / "wrong", Signature((), ()), model)
    assert torch.allclose(run(x)[0], model(x) + x.sum(1, keepdim=True), atol=1e-5)
