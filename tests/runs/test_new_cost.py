"""A third cost in ``COSTS`` shows in everything that a run tells, and runs from before it are told as they were."""

from __future__ import annotations

import io
import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from rbprune.graph.cost import COSTS, CountedCost
from rbprune.logging.console import summary_table
from rbprune.methods.settings import PruningSettings
from rbprune.runs.folder import RunFolder
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from tests.runs.quick import SMALL, events, summary_of

OLD = Path(__file__).parent / "old_run"
OLD_FIGURES = (
    ("MACs", "19.49x", "2.3 M → 117.7 k"),
    ("Parameters", "51.38x", "430.5 k → 8.4 k"),
    ("Error", "0.60 % → 1.40 %", "+0.80 points · validation 2.33 %"),
    ("Cost", "24.5", "dense epochs: pretrain 12 · prune 11.2 · fine-tune 1.28"),
    ("Time", "1 min 09 s", "570 → 48 channels"),
)
"""The figures on the page of ``old_run`` before pages knew costs by name."""
OLD_STAGES = (
    ("20 → 3", "8", "no", "10 %", "3.33x", "1.05x", "3.33 %", "18 s"),
    ("50 → 14", "8", "no", "20 %", "10.08x", "3.64x", "2.50 %", "8.9 s"),
    ("500 → 31", "8", "no", "23 %", "19.49x", "51.38x", "3.50 %", "5.4 s"),
)
"""The rows of its table of stages, from the channels on."""
QUICK = (
    *SMALL,
    "pretrain.epochs=1",
    "prune.epochs=1",
    "prune.rate_lr=0.5",
    "prune.price={nats_per_example=0.02, nats=0.2}",
    "prune.max_rise=100",
    "prune.confidence=0",
    "finetune.epochs=1",
    "runtime.checkpoint_seconds=1000",
)


@pytest.fixture
def size(monkeypatch: pytest.MonkeyPatch) -> CountedCost:
    """A cost that nothing but ``COSTS`` and the settings knows: the bytes of all weights."""
    cost = CountedCost("bytes", "bytes of weights", lambda layer: 4 * layer.params)
    monkeypatch.setitem(COSTS, cost.name, cost)
    monkeypatch.setattr(PruningSettings, f"{cost.name}_ratio", None, raising=False)
    return cost


def plain(page: str) -> str:
    """A page without the explanations of its words."""
    return re.sub(r'<span class="term"[^>]*>([^<]*)</span>', r"\1", page)


def figures(page: str) -> tuple[tuple[str, ...], ...]:
    """The name, the value and the note of each figure at the top of a page."""
    parts = r'<span class="name">([^<]*)</span><b[^>]*>([^<]*)</b><span class="note">([^<]*)</span>'
    return tuple(re.findall(parts, plain(page)))


def stages(page: str) -> tuple[tuple[str, ...], ...]:
    """The rows of the table of stages, without number and sites."""
    body = page[page.index('aria-label="Stages"') :].split("<tbody>")[1].split("</tbody>")[0]
    return tuple(tuple(re.findall(r"<td[^>]*>([^<]+)</td>", row)[1:]) for row in body.split("</tr>")[:-1])


def test_a_run_tells_it_without_any_other_change(tmp_path: Path, size: CountedCost) -> None:
    console = Console(file=io.StringIO(), width=200)
    summary = start(load_recipe("demo", QUICK), tmp_path / "run", console=console)
    assert summary == summary_of(tmp_path / "run")
    before, after, ratio = (summary[f"{size.name}_{part}"] for part in ("before", "after", "ratio"))
    assert (before, after) == (4 * summary["params_before"], 4 * summary["params_after"])
    assert ratio == before / after == summary["params_ratio"] > 1

    seen = [event for event in events(tmp_path / "run") if event["event"] == "stage"]
    reached = [f"{event[f'{size.name}_ratio']:.2f}x" for event in seen]
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [line for line in shown.splitlines() if line.startswith("stage ")]
    assert [line.split("bytes of weights ")[1].split()[0] for line in lines] == reached

    end = Console(file=io.StringIO(), width=200)
    summary_table(summary, end)
    table = end.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(rf"bytes of weights +1\.7 M +[\d.]+ [kM]? *{ratio:.2f}x", table)

    page = (tmp_path / "run" / "report.html").read_text()
    assert [name for name, _, _ in figures(page)][:4] == ["MACs", "Parameters", "Bytes of weights", "Error"]
    assert figures(page)[2][1] == f"{ratio:.2f}x" and figures(page)[2][2].startswith("1.7 M → ")
    assert '<th class="n">Parameters</th><th class="n">Bytes of weights</th><th class="n">Val. error</th>' in plain(
        page
    )
    assert [row[9] for row in stages(page)] == reached


def page_of_old_run(folder: Path) -> str:
    shutil.copytree(OLD, folder, dirs_exist_ok=True)
    run = RunFolder(folder)
    run.finish(summary_of(folder))
    return run.report_file.read_text()


def test_an_old_run_is_shown_as_before(tmp_path: Path) -> None:
    page = page_of_old_run(tmp_path)
    assert figures(page) == OLD_FIGURES
    assert stages(page) == OLD_STAGES


def test_an_old_run_says_nothing_of_a_new_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_of_old_run(tmp_path)
    monkeypatch.setitem(COSTS, "bytes", CountedCost("bytes", "bytes of weights", lambda layer: 4 * layer.params))
    assert page_of_old_run(tmp_path) == page
    console = Console(file=io.StringIO(), width=80)
    summary_table(summary_of(OLD), console)
    table = console.file.getvalue()  # type: ignore[attr-defined]
    assert "51.38x" in table and "bytes" not in table
