"""docs/deployment.md: its commands are run one after the other, and so are its Python blocks on what they wrote."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from rbprune import data, models
from rbprune.runs.finished import load
from tests.cli.command import run
from tests.runs.test_pair import run_folder
from tests.test_examples import ROOT, blocks

pytestmark = pytest.mark.filterwarnings("ignore:.*has no list of checksums")

PAGE = ROOT / "docs" / "deployment.md"


def test_the_page_on_deployment_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rbprune.measure.latency.WARM_UP_SECONDS", 0.01)
    run_folder(tmp_path / "runs" / "demo", "lenet5", "data.limit=64")
    lines = [line.split("  #")[0].strip() for block in blocks(PAGE, "bash") for line in block.splitlines()]
    assert len(lines) == 9
    for line in lines:
        assert run(*shlex.split(line)[1:]) == 0, line
    source = data.load("mnist-subset").test
    images = next(iter(source.batches(torch.arange(3), 3, seed=0, augment=False)))[0].numpy()
    wanted = load("runs/demo", models.build("lenet5")).eval()(torch.from_numpy(images)).detach().numpy()
    found = blocks(PAGE, "python")
    assert len(found) == 3
    for block in found:
        names: dict[str, Any] = {"images": images}
        exec(compile(block, "deployment.md", "exec"), names)
        outputs = names["outputs"]
        outputs = outputs.detach().numpy() if isinstance(outputs, torch.Tensor) else outputs[0]
        assert abs(outputs - wanted).max() / abs(wanted).max() < (0.2 if "int8" in block else 1e-4)


def matrix(first_column: str) -> dict[str, dict[str, str]]:
    """A table of the export matrix whose second column has this name: the cells of each network, by column."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines()]
    begin = next(i for i, cells in enumerate(lines) if cells[:2] == ["network", first_column])
    return {cells[0]: dict(zip(lines[begin], cells, strict=True)) for cells in lines[begin + 2 : begin + 8]}


def test_the_export_matrix_has_every_network_in_every_format_with_its_difference_and_its_time() -> None:
    benchmark = (ROOT / "benchmarks" / "export.py").read_text()
    networks = re.findall(r'^    "([\w:-]+)": \(', benchmark, re.MULTILINE)
    written, timed = matrix("safetensors"), matrix("MACs")
    assert len(networks) == 6 and list(written) == list(timed) == networks
    runtimes = {"pt2", "onnx", "onnx int8", "openvino", "openvino int8"}
    for name in networks:
        assert set(written[name]) == {"network", "safetensors", *runtimes}
        for column in written[name].keys() - {"network"}:
            difference, size = re.fullmatch(r"([\d.e+-]+) \(([\d.]+) MB\)", written[name][column]).groups()  # type: ignore[union-attr]
            assert float(size) > 0
            assert "int8" in column or float(difference) <= 1e-4, "what the export refuses cannot be in the table"
        assert runtimes <= set(timed[name]) and all(float(timed[name][column]) > 0 for column in runtimes)
        assert re.fullmatch(r"[\d.]+, [\d.]+ \([\d.]+x\)", timed[name]["PyTorch dense, pruned"])
