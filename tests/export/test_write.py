"""Whole exports: each format is opened by its own runtime and computes what the network computes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import load_file, save_file

import rbprune
from rbprune.errors import ConfigError, ExportError
from rbprune.export import write
from rbprune.export.write import Exported, export_network
from tests.export.small import small_network, small_samples
from tests.networks import stripes, tiny_cnn

WITHOUT_RBPRUNE = """
import importlib.abc, sys

class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "rbprune":
            raise ImportError("rbprune is blocked")

sys.meta_path.insert(0, Block())
try:
    import rbprune
except ImportError:
    pass
else:
    sys.exit("rbprune can be imported")
import numpy as np
images = np.load("images.npy")
import onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
np.save("onnx.npy", session.run(["output"], {"input": images})[0])
import torch
model = torch.export.load("model.pt2").module()
np.save("pt2.npy", model(torch.from_numpy(images)).detach().numpy())
assert not [name for name in sys.modules if name.split(".")[0] == "rbprune"]
"""
ALL = [(format, False) for format in ("onnx", "pt2", "openvino", "safetensors")] + [("onnx", True), ("openvino", True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[str, bool], Exported]]:
    """One network in every format, all in one folder."""
    out = tmp_path_factory.mktemp("export") / "hub"
    network, samples = small_network(), small_samples()
    return out, {
        (format, int8): export_network(network, samples, out, format=format, int8=int8) for format, int8 in ALL
    }


def test_every_format_computes_what_the_network_computes(folder: tuple[Path, dict[tuple[str, bool], Exported]]) -> None:
    out, exported = folder
    for (_, int8), found in exported.items():
        assert found.file.parent == out
        assert found.bytes >= found.file.stat().st_size > 0
        assert found.difference < (0.1 if int8 else 1e-5)
        assert found.int8 == int8
    weights = {name: onnx.load(out / name).graph.initializer for name in ("model.onnx", "model_int8.onnx")}
    kernels = {name: [w.data_type for w in found if len(w.dims) == 4] for name, found in weights.items()}
    assert kernels == {"model.onnx": [onnx.TensorProto.FLOAT] * 2, "model_int8.onnx": [onnx.TensorProto.INT8] * 2}


def test_int8_tells_the_error_before_and_after(folder: tuple[Path, dict[tuple[str, bool], Exported]]) -> None:
    for format in ("onnx", "openvino"):
        found = folder[1][format, True]
        assert found.calibrated_on == 128
        assert found.errors is not None
        images, labels = (torch.cat(parts) for parts in zip(stripes(50, seed=3), stripes(30, seed=4), strict=True))
        outputs = small_network().model.eval()(images)
        assert found.errors["before"] == pytest.approx(100 * float((outputs.argmax(1) != labels).float().mean()))
        assert found.errors["after"] <= found.errors["before"] + 3
        assert found.errors["data"] == "validation data"


def test_a_process_without_rbprune_runs_the_files(
    folder: tuple[Path, dict[tuple[str, bool], Exported]], tmp_path: Path
) -> None:
    for name in ("model.onnx", "model.pt2"):
        (tmp_path / name).write_bytes((folder[0] / name).read_bytes())
    images = stripes(5, seed=9)[0]
    np.save(tmp_path / "images.npy", images.numpy())
    done = subprocess.run(
        [sys.executable, "-I", "-c", WITHOUT_RBPRUNE], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    wanted = small_network().model.eval()(images).detach()
    for name in ("onnx", "pt2"):
        found = torch.from_numpy(np.load(tmp_path / f"{name}.npy"))
        assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-5


def test_names_and_the_dynamic_batch_are_in_the_file(folder: tuple[Path, dict[tuple[str, bool], Exported]]) -> None:
    graph = onnx.load(folder[0] / "model.onnx").graph
    assert ([i.name for i in graph.input], [o.name for o in graph.output]) == (["input"], ["output"])
    sizes = graph.input[0].type.tensor_type.shape.dim
    assert sizes[0].dim_param
    assert [size.dim_value for size in sizes[1:]] == [1, 8, 8]


def test_the_folder_is_read_back_and_can_be_pushed(folder: tuple[Path, dict[tuple[str, bool], Exported]]) -> None:
    from huggingface_hub import ModelCard

    out, exported = folder
    x = stripes(4)[0]
    loaded = rbprune.load(out, tiny_cnn())
    assert torch.equal(loaded.eval()(x), small_network().model.eval()(x))
    card = ModelCard.load(out / "README.md")
    assert (card.data.library_name, card.data.license) == ("rbprune", "unknown")
    assert {"onnx", "openvino", "pruning"} <= set(card.data.tags)
    config = json.loads((out / "config.json").read_text())
    assert (config["inputs"], config["outputs"]) == (["input"], ["output"])
    assert set(config["files"]) == {found.file.name for found in exported.values()}
    assert all(f"`{name}`" in card.text for name in config["files"])
    assert sorted(path.suffix for path in out.iterdir() if path.name.startswith(".")) == []


def test_sixteen_bits_make_safetensors_half_as_large_and_tell_the_error(tmp_path: Path) -> None:
    network, samples, out = small_network(), small_samples(), tmp_path / "hub"
    before = {name: tensor.clone() for name, tensor in network.model.state_dict().items()}
    found = export_network(network, samples, out, format="safetensors", half=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.model.state_dict().items())
    held = load_file(out / "model.safetensors")
    assert {name for name, tensor in held.items() if tensor.dtype is torch.float16} == {
        name for name, tensor in before.items() if tensor.dim() > 1
    }
    for name, tensor in held.items():
        torch.testing.assert_close(tensor.to(before[name]), before[name], rtol=2**-11, atol=1e-7)
    assert 0 < found.difference < 0.01
    assert found.errors is not None and abs(found.errors["after"] - found.errors["before"]) <= 2.5
    export_network(network.halved(), samples, out, format="pt2")  # into the same folder: it is the same network
    assert "safetensors, 16 bits" in (out / "README.md").read_text("utf-8")


def test_weights_that_sixteen_bits_cannot_hold_are_refused(tmp_path: Path) -> None:
    network = small_network(learnt=False)
    with torch.no_grad():
        network.model[10].weight[0, 0] = 1e5
    with pytest.raises(ExportError, match=r"'10.weight' holds numbers beyond 65504"):
        export_network(network, small_samples(), tmp_path / "hub", format="safetensors", half=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_fails_the_check_never_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, samples = small_network(learnt=False), small_samples()

    def wrong(tensors: dict[str, torch.Tensor], file: Path) -> None:
        save_file({**tensors, "10.bias": tensors["10.bias"] + 1}, file)

    monkeypatch.setattr(write, "save_file", wrong)
    for out in (tmp_path / "new" / "hub", tmp_path / "alone.safetensors"):
        with pytest.raises(
            ExportError, match=r"the safetensors file differs from the network by \d.* it was not written"
        ):
            export_network(network, samples, out, format="safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_file_alone_has_nothing_beside_it_and_is_not_overwritten(tmp_path: Path) -> None:
    network, samples = small_network(learnt=False), small_samples()
    found = export_network(network, samples, tmp_path / "mine.pt2", format="pt2", batch=4)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.pt2"]
    model = torch.export.load(found.file).module()
    x = stripes(4)[0]
    assert torch.allclose(model(x), network.model.eval()(x), atol=1e-6)
    with pytest.raises(Exception, match=r"(?i)shape|size|guard"):
        model(stripes(5)[0])
    with pytest.raises(ConfigError, match=r"mine\.pt2 exists; remove it"):
        export_network(network, samples, tmp_path / "mine.pt2", format="pt2")


def test_int8_without_training_images_says_what_is_missing(tmp_path: Path) -> None:
    samples = small_samples(calibration=None, missing="no folder was given")
    with pytest.raises(ConfigError, match=r"calibrated on training images, and no folder was given; .*data\.path=DIR"):
        export_network(small_network(learnt=False), samples, tmp_path / "out", format="onnx", int8=True)
    assert list(tmp_path.iterdir()) == []


def test_a_batch_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch is a number from 1 on, or dynamic; got 0"):
        export_network(small_network(learnt=False), small_samples(), tmp_path / "o", format="pt2", batch=0)
