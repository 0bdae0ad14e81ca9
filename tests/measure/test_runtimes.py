"""ONNX Runtime and OpenVINO, with a network that is written by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rbprune.errors import ConfigError
from rbprune.measure.runtimes import import_onnxruntime, import_openvino, open_onnx, open_openvino
from tests.export.test_quantise import product

TELEMETRY = """
import sys
from rbprune.measure.runtimes import import_openvino
openvino = import_openvino()
loaded = [name for name in sys.modules if name.split(".")[0] == "openvino_telemetry"]
from openvino.tools.ovc import telemetry_utils
print(loaded, telemetry_utils.tm.__name__)
"""


def test_both_runtimes_compute_the_same_with_any_batch(tmp_path: Path) -> None:
    weight = torch.randn(5, 3)
    file = product(tmp_path / "model.onnx", weight)
    openvino = import_openvino()
    openvino.save_model(openvino.convert_model(str(file)), str(tmp_path / "model.xml"), compress_to_fp16=False)
    runs = [open_onnx(file), open_onnx(file.read_bytes(), threads=1), open_openvino(tmp_path / "model.xml", threads=1)]
    for batch in (1, 7):
        x = torch.randn(batch, 5)
        for run in runs:
            assert torch.allclose(run([x])[0], x @ weight, atol=1e-5)


def test_a_result_is_not_overwritten_by_the_next(tmp_path: Path) -> None:
    openvino = import_openvino()
    model = openvino.convert_model(str(product(tmp_path / "model.onnx", torch.eye(2))))
    openvino.save_model(model, str(tmp_path / "model.xml"))
    run = open_openvino(tmp_path / "model.xml")
    first = run([torch.ones(1, 2)])[0]
    run([torch.zeros(1, 2)])
    assert first.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize(("package", "importer"), [("onnxruntime", import_onnxruntime), ("openvino", import_openvino)])
def test_a_missing_runtime_is_named_with_its_extra(package, importer, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"is not installed: pip install 'rbprune\[(onnx|openvino)\]'"):
        importer()


def test_openvino_does_not_report_to_its_makers() -> None:
    done = subprocess.run([sys.executable, "-c", TELEMETRY], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[] openvino.tools.ovc.telemetry_stub"
