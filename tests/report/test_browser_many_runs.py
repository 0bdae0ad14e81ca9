"""The pages of ``frontier``, ``compare`` and ``reproduce`` in a real browser, as the commands write them: no complaint,
no request, no overflow, letters that can be read, and the numbers of their JSON."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from rbprune.reproduce.experiments import Experiment
from rbprune.reproduce.page import write_page
from tests.cli.command import run
from tests.report.browser import WIDTHS, OpenPage
from tests.reproduce.small import IBP, RBP, small_table
from tests.reproduce.small import run as reproduce
from tests.runs.quick import SMALL, overrides

WORDS = overrides((*SMALL, "pretrain.epochs=2", "finetune.epochs=1"))
NAMES = ("frontier", "compare", "reproduce", "channels", "rates")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind, from runs of a second. One method of the comparison fails, so that there are notes."""
    root, table = tmp_path_factory.mktemp("many"), small_table(tmp_path_factory)
    words = (*WORDS, "--set", "prune.method=uniform", "--to", "4", "--steps", "3")
    assert run("frontier", "demo", "--out", str(root / "frontier"), *words) == 0
    methods = ("--methods", "uniform,l1,thinet,slimming", "--seeds", "2", "--set", "prune.macs_ratio=2")
    assert run("compare", "demo", *methods, *WORDS, "--set", "prune.epochs=1", "--out", str(root / "compare")) != 0
    found = {name: root / name / f"{name}.html" for name in ("frontier", "compare")}
    for name in ("channels", "rates"):
        found[name] = write_page(
            reproduce(table, Experiment(name, name, (RBP, IBP))), root, f"rbprune reproduce {name}"
        )
    return found | {"reproduce": table / "cifar10.html"}


def rows_of(page: OpenPage, number: int = 0) -> list[list[str]]:
    """The cells of a table as they are seen."""
    rows = page.page.locator("table").nth(number).locator("tbody tr")
    return [rows.nth(i).locator("td").all_inner_texts() for i in range(rows.count())]


def told(page: Path) -> Any:
    return json.loads(page.with_suffix(".json").read_text())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_a_page_asks_for_nothing_complains_of_nothing_and_can_be_read(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    shown = OpenPage(browser, pages[name], width)
    shown.check()
    assert shown.page.locator("svg:visible").count() >= 1
    shown.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_letters_can_be_told_from_their_background(
    browser: Any, pages: dict[str, Path], name: str, scheme: str
) -> None:
    shown = OpenPage(browser, pages[name], 1000, scheme)
    assert shown.low_contrast() == []
    shown.page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_frontier_shows_the_numbers_of_its_json(browser: Any, pages: dict[str, Path], width: int) -> None:
    found = told(pages["frontier"])
    shown = OpenPage(browser, pages["frontier"], width)
    rows = rows_of(shown)
    assert len(rows) == len(found["points"]) == 4
    for cells, point in zip(rows, found["points"], strict=True):
        assert cells[0] == (point["path"] or "dense")
        assert [f"{point['ratios'][cost]:.2f}x" for cost in ("macs", "params")] == cells[3:5]
        assert (f"{point['val_error']:.2f} %", f"{point['error']:.2f} %") == (cells[5], cells[7])
        assert cells[8] == f"{point['dense_epochs']:.1f}"
    last = found["points"][-1]
    ends = shown.page.locator("svg:visible text.refer").all_text_contents()
    assert ends == [f"validation {last['val_error']:.2f} %", f"test {last['error']:.2f} %"]
    tips = shown.page.locator("svg:visible circle title").all_text_contents()
    assert len(tips) == 8, "each network has a dot on both lines, which tells its error"
    shown.page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_comparison_shows_the_numbers_of_its_json(browser: Any, pages: dict[str, Path], width: int) -> None:
    found = told(pages["compare"])
    shown = OpenPage(browser, pages["compare"], width)
    rows = {cells[0]: cells for cells in rows_of(shown)}
    charts = shown.page.locator("svg:visible")
    beside = charts.nth(0).locator("text.tick").all_text_contents()
    assert list(rows) == [method["label"] for method in found["rows"]] and charts.count() == 2
    for method in found["rows"]:
        cells = rows[method["label"]]
        if not method["error"]:
            assert cells[1] == "failed, see the notes" and method["label"] in shown.text("ul")
            continue
        mean, ratio = statistics.mean(method["error"]), statistics.mean(method["macs_ratio"])
        assert f"{mean:.2f} +- {statistics.stdev(method['error']):.2f}" in cells
        assert any(cell.startswith(f"{ratio:.2f} +- ") for cell in cells)
        assert any(text.removeprefix("> ") == f"{mean:.2f} % at {ratio:.2f}x" for text in beside)
    shown.page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_reproduction_shows_the_numbers_of_its_json(browser: Any, pages: dict[str, Path], width: int) -> None:
    found = told(pages["reproduce"])
    shown = OpenPage(browser, pages["reproduce"], width)
    for number, table in enumerate(found["tables"]):
        assert rows_of(shown, number) == table["rows"]
    here = [cells for cells in rows_of(shown) if cells[1] == "here" and cells[0] != "Baseline"]
    errors = {f"{summary['error_after']:.2f}" for summary in found["runs"].values()}
    assert {cells[5] for cells in here} == errors
    assert shown.text(".notes").startswith("demo-slimming: ")
    shown.page.close()
