"""Ways to run a network compute the same, and what they do not do is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import nn

from rbprune.errors import ConfigError, ModelError
from rbprune.measure.backend import check_backend, runnable, to_onnx
from tests.networks import tiny_cnn

CPU = torch.device("cpu")


def test_onnx_runtime_computes_what_torch_does() -> None:
    torch.manual_seed(0)
    model, x = tiny_cnn().eval(), torch.randn(3, 1, 8, 8)
    with torch.no_grad():
        expected = runnable(model, x)()
        found = runnable(model, x, "onnxruntime")()
    np.testing.assert_allclose(found[0], expected.numpy(), atol=1e-5)
    assert torch.equal(expected, model(x))


@pytest.mark.slow
def test_compiled_computes_what_torch_does() -> None:
    torch.manual_seed(0)
    model, x = tiny_cnn().eval(), torch.randn(3, 1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(runnable(model, x, "compile")(), model(x))


def test_what_a_backend_does_not_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="unknown backend 'tensorrt'; known are eager, compile, onnxruntime"):
        check_backend("tensorrt", CPU, "float32", False)
    with pytest.raises(ConfigError, match="cpu, bfloat16, channels-last: take --backend eager or compile"):
        check_backend("onnxruntime", CPU, "bfloat16", True)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r"not installed: pip install 'rbprune\[onnx\]'"):
        check_backend("onnxruntime", CPU, "float32", False)


class Moody(nn.Module):
    """Cannot be exported."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("not today")


def test_what_cannot_be_exported_is_named() -> None:
    with pytest.raises(ModelError, match="Moody cannot be exported to ONNX: not today; use --backend eager"):
        to_onnx(Moody(), torch.zeros(1))
