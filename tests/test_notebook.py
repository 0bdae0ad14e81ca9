"""The notebook runs from its first cell to its last, and what the committed file shows is what such a run shows."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.test_examples import ROOT

NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"
RUN = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], 4)
NotebookClient(book, timeout=600, kernel_name="python3").execute()
nbformat.write(book, sys.argv[2])
"""


def text_of(cell: Any) -> str:
    """What a cell printed or gave."""
    return "".join(out.get("text", "") or str(out.get("data", {}).get("text/plain", "")) for out in cell.outputs)


def code_cells(book: Any) -> list[Any]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook after a run of its own, in a kernel of its own."""
    folder = tmp_path_factory.mktemp("notebook")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", RUN, str(NOTEBOOK), str(folder / "done.ipynb")]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["done.ipynb"]
    return nbformat.read(folder / "done.ipynb", 4)


def table(book: Any) -> dict[str, list[float]]:
    """The rows of the fair table: times fewer MACs, times fewer parameters, test error."""
    printed = next(text_of(cell) for cell in code_cells(book) if "train_longer()" in cell.source)
    rows = re.findall(r"^(\w[\w, -]*?)\s+([\d.]+)x\s+([\d.]+)x\s+([\d.]+) %$", printed, re.MULTILINE)
    return {name: [float(number) for number in numbers] for name, *numbers in rows}


def test_the_notebook_prunes_compares_exports_and_times(executed: Any) -> None:
    rows = table(executed)
    assert list(rows) == ["dense", "dense, longer", "rbp", "l1", "tp-magnitude"]
    for method in ("rbp", "l1", "tp-magnitude"):
        assert 2.97 <= rows[method][0] <= 3.2  # one channel of the first layer is 6 % of the MACs that are left
    assert rows["rbp"][2] < rows["dense"][2] + 1.5
    printed = [text_of(cell) for cell in code_cells(executed)]
    assert any("small.onnx: differs from PyTorch by" in text for text in printed)
    assert any(re.search(r"pruned\s+[\d.]+ ms", text) for text in printed)


def test_the_committed_notebook_has_the_outputs_of_a_run(executed: Any) -> None:
    """Figures may differ from machine to machine; lines, and what is exact, may not."""
    committed = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(committed)
    for kept, new in zip(code_cells(committed), code_cells(executed), strict=True):
        assert kept.execution_count == new.execution_count
        figures = re.compile(r"[-+]?\d[\d.,e+-]*")
        assert figures.sub("N", text_of(kept)).split() == figures.sub("N", text_of(new)).split(), kept.source
    assert list(table(committed)) == list(table(executed))


def test_the_notebook_is_ready_for_colab() -> None:
    """Its first cell installs what is missing, by the extras that there are; nothing else is needed from outside."""
    first = code_cells(nbformat.read(NOTEBOOK, 4))[0].source
    assert 'find_spec("rbprune") is None' in first
    extras = re.search(r'"rbprune\[([\w,]+)\]"', first)
    assert extras is not None
    project = (ROOT / "pyproject.toml").read_text()
    for extra in extras[1].split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE)
    assert importlib.util.find_spec("rbprune") is not None
    assert Path(NOTEBOOK).stat().st_size < 100_000
