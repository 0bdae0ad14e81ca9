"""The report and the page of several runs, looked at in a real browser: no complaint, no request, no overflow, and the
numbers of the summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rbprune.logging.events import EventLog, read_events
from rbprune.report.run_record import gather_run
from rbprune.report.side_by_side import RunBeside, write_side_by_side
from tests.report.browser import WIDTHS, OpenPage
from tests.report.fake import write_run
from tests.report.test_html import report_of

LONG = "a.very.long.name.of.a.layer." * 6


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of runs of every kind: finished, unfinished, with long names, without anything, and several beside."""
    root = tmp_path_factory.mktemp("pages")
    folders = {name: root / name for name in ("finished", "unfinished", "long", "bare")}
    for folder in folders.values():
        folder.mkdir()
    summary = write_run(folders["finished"])
    (folders["finished"] / "summary.json").write_text(json.dumps(summary))
    write_run(folders["unfinished"], until="stage")
    log = EventLog(folders["long"] / "events.jsonl")
    log.write("start", model=LONG, method=LONG, sites={LONG: 4096, "b": 8}, layers=[{"name": LONG, "macs": 123456789}])
    log.write("epoch", phase="prune", epoch=1, loss=1e-7, val_error=99.99, dense_epochs=0.001, kl=12345.678)
    log.write(
        "stage", stage=0, sites=[LONG], channels={LONG: [4096, 4000]}, values={LONG: [0.1] * 4096}, guarded=[LONG]
    )
    log.write("warning", message="x" * 500)
    verdict = {"level": "bad", "text": LONG}
    log.write("done", summary={"verdict": verdict, "macs_before": 1e12, "macs_after": 9e11, "macs_ratio": 1234567.0})
    (folders["bare"] / "events.jsonl").write_text("")
    found = {name: report_of(folder) for name, folder in folders.items()}
    runs = [
        RunBeside(name, gather_run(read_events(folder / "events.jsonl")), f"{name}/report.html")
        for name, folder in folders.items()
    ]
    return found | {"beside": write_side_by_side(root / "runs.html", runs, "rbprune report " + LONG)}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["finished", "unfinished", "long", "bare", "beside"])
def test_a_page_asks_for_nothing_complains_of_nothing_and_fits(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    shown = OpenPage(browser, pages[name], width)
    shown.check()
    shown.page.close()


def test_the_numbers_that_are_seen_are_those_of_the_summary(browser: Any, pages: dict[str, Path]) -> None:
    summary = json.loads((pages["finished"].parent / "summary.json").read_text())
    shown = OpenPage(browser, pages["finished"])
    figures = {
        name: shown.text(f"[data-figure={name}]") for name in ("macs", "params", "error", "measured_latency", "cost")
    }
    assert f"{summary['macs_ratio']:.2f}x" in figures["macs"]
    assert f"{summary['macs_before'] / 1e6:.1f} M → {summary['macs_after'] / 1e6:.1f} M" in figures["macs"]
    assert f"{summary['params_ratio']:.2f}x" in figures["params"]
    assert f"{summary['error_before']:.2f} % → {summary['error_after']:.2f} %" in figures["error"]
    validation = f"{summary['val_error_before']:.2f} % → {summary['val_error_after']:.2f} %"
    assert validation in figures["error"]
    assert f"{summary['measured_latency']['ratio']:.2f}x" in figures["measured_latency"]
    assert f"{sum(summary['dense_epochs'].values()):.3g}" in figures["cost"]
    channels = [sum(pair[side] for pair in summary["channels"].values()) for side in (0, 1)]
    assert f"{channels[0]} → {channels[1]} channels" in shown.text("[data-figure=time]")
    assert shown.text("main > header > :first-child").endswith(summary["verdict"]["text"])
    rows = shown.page.locator(".row:not(.closed) > :last-child").all_inner_texts()
    assert rows == [f"{before} → {after}" for before, after in summary["channels"].values()]
    shown.page.close()


@pytest.mark.parametrize("width", [390, 1000])
def test_a_word_is_explained_under_the_pointer_and_on_focus(browser: Any, pages: dict[str, Path], width: int) -> None:
    shown = OpenPage(browser, pages["finished"], width)
    script = "e => { const s = getComputedStyle(e, '::after'); return [s.content, s.position] }"
    terms = shown.page.locator(".term")
    for number in range(0, terms.count(), 4):
        term = terms.nth(number)
        assert term.evaluate(script)[0] in ("none", "normal")
        term.focus()
        content, position = term.evaluate(script)
        assert json.loads(content) == term.get_attribute("data-tip") and position == "fixed"
        assert shown.overflow <= 0
    shown.page.keyboard.press("Tab")
    shown.page.locator("[data-figure=macs] .term").hover()
    assert "Multiply-accumulates" in shown.page.locator("[data-figure=macs] .term").evaluate(script)[0]
    shown.page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_can_be_told_from_their_background(browser: Any, pages: dict[str, Path], scheme: str) -> None:
    shown = OpenPage(browser, pages["finished"], 1000, scheme)
    assert shown.low_contrast() == []
    shown.page.close()


def test_the_page_of_a_run_that_goes_is_read_anew(browser: Any, tmp_path: Path) -> None:
    from rbprune.report import write_report

    files = {"events": tmp_path / "events.jsonl", "settings": tmp_path / "config.toml"}
    write_run(tmp_path, sites=3, until="stage")
    page = write_report(tmp_path / "report.html", **files, refresh=1)
    shown = OpenPage(browser, page)
    assert "unfinished" in shown.text(".verdict").lower()
    files["events"].unlink()
    write_run(tmp_path, sites=3)
    write_report(page, **files, refresh=1)
    shown.page.wait_for_selector(".verdict.good", timeout=10_000)
    assert shown.complaints == [] and len(shown.requests) == 2
    shown.page.wait_for_timeout(1500)
    assert len(shown.requests) == 2, "a finished run's page is not read again"
    shown.page.close()
