"""``rbprune export``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Refused, run
from tests.runs.test_pair import run_folder

pytestmark = pytest.mark.filterwarnings("ignore:.*has no list of checksums")


def test_export_tells_what_it_wrote_and_what_the_check_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path / "run", "lenet5")
    words = ("export", str(folder), "--format", "onnx", "--int8", "--out", str(tmp_path / "hub"))
    assert run(*words, "--set", "data.limit=64") == 0
    text = capsys.readouterr().out
    assert "model_int8.onnx  (onnx, int8, batch dynamic, " in text
    assert "calibrated on 64 training images" in text
    weights = (tmp_path / "hub" / "model.safetensors").stat().st_size
    assert (tmp_path / "hub" / "model_int8.onnx").stat().st_size < 0.3 * weights
    assert "error on the validation data: " in text
    assert "on 32 validation images of mnist-subset" in text
    assert (
        run(
            "export", str(tmp_path / "hub"), "--format", "pt2", "--batch", "2", "--out", str(tmp_path / "hub"), "--json"
        )
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["batch"], told["int8"]) == ("pt2", 2, False)
    assert told["difference"] < 1e-6
    assert Path(told["file"]).stat().st_size == told["bytes"]


def test_a_folder_in_sixteen_bits_is_exported_again_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, small = run_folder(tmp_path / "run", "lenet5"), str(tmp_path / "small")
    assert run("export", str(folder), "--format", "safetensors", "--half", "--out", small) == 0
    text = capsys.readouterr().out
    assert "model.safetensors  (safetensors, 16 bits, batch dynamic, " in text
    assert "% in 16 bits" in text
    size = (tmp_path / "small" / "model.safetensors").stat().st_size
    assert size < 0.52 * (folder / "model.safetensors").stat().st_size
    assert run("export", small, "--format", "pt2", "--out", small) == 0
    assert (tmp_path / "small" / "model.safetensors").stat().st_size == size


def test_export_explains_its_mistakes(tmp_path_factory: pytest.TempPathFactory, refused: Refused) -> None:
    folder = str(run_folder(tmp_path_factory.mktemp("cli") / "run", "lenet5"))
    for words, message in [
        (("export", "nowhere", "--format", "onnx", "--out", "x"), "nowhere is neither a run"),
        (("export", folder, "--format", "pt2", "--int8", "--out", "x"), "int8 is for the formats onnx and openvino"),
        (("export", folder, "--format", "pt2", "--batch", "many", "--out", "x"), "--batch is dynamic or a number"),
        (("export", folder, "--format", "onnx", "--set", "data.name=cifar10", "--out", "x"), "no folder was given"),
    ]:
        refused(words, message)
