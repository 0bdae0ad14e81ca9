"""Several runs on one page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rbprune.logging.events import read_events
from rbprune.report.run_record import gather_run
from rbprune.report.side_by_side import RunBeside, error_against_macs, width_tables, write_side_by_side
from tests.report.fake import write_run
from tests.report.test_html import Page


def beside(folder: Path, name: str, link: str | None = None, **changes: Any) -> RunBeside:
    """A run of 5 sites."""
    (folder / name).mkdir()
    write_run(folder / name, sites=5, **changes)
    return RunBeside(name, gather_run(read_events(folder / name / "events.jsonl")), link)


def of_events(name: str, *events: dict[str, Any]) -> RunBeside:
    return RunBeside(name, gather_run(list(events)))


def test_the_outcomes_are_those_of_the_summaries(tmp_path: Path) -> None:
    runs = [beside(tmp_path, "one", "one/report.html"), beside(tmp_path, "two", until="finetune")]
    page = Page(write_side_by_side(tmp_path / "runs.html", runs, "rbprune report one two"))
    assert {attrs.get("href") for tag, attrs in page.tags if tag == "a"} == {"one/report.html"}
    row = re.search(r"one resnet56-cifar rrbp good 2.10x 1.40x 2.00x 6.61 % → 6.95 % 6.80 % → 7.02 %", page.text)
    assert row is not None and "two resnet56-cifar rrbp unfinished 2.10x" in page.text
    assert "script" not in {tag for tag, _ in page.tags}
    assert not [attrs for _, attrs in page.tags if {"src", "xlink:href"} & attrs.keys()]
    assert "rbprune report one two" in page.text


def test_widths_stand_side_by_side_where_the_networks_are_the_same(tmp_path: Path) -> None:
    sites = {"a": 16, "b": 8, "sum": 4}
    first = of_events(
        "x",
        {"event": "start", "model": "m", "sites": sites, "stages": [["a"], ["b"]]},
        {"event": "stage", "stage": 0, "channels": {"a": [16, 3]}},
    )
    second = of_events(
        "y",
        {"event": "start", "model": "m", "sites": sites, "stages": [["a", "b", "sum"]]},
        {"event": "stage", "stage": 0, "channels": {"a": [16, 5], "b": [8, 7], "sum": [4, 2]}},
    )
    other = of_events("z", {"event": "start", "model": "m", "sites": {"a": 99}, "stages": [["a"]]})
    tables = width_tables([first, second, other])
    assert [(table.runs, table.widest) for table in tables] == [(["x", "y"], 16), (["z"], 99)]
    shown = {
        name: [None if site is None else (site.is_open, site.now) for site in found]
        for name, _, found in tables[0].rows
    }
    assert shown == {"a": [(True, 3), (True, 5)], "b": [(True, 8), (True, 7)], "sum": [(False, 4), (True, 2)]}
    text = write_side_by_side(tmp_path / "runs.html", [first, second], "").read_text()
    assert text.count('<i class="closed"') == 2, "the legend, and the sum that the first method leaves alone"


def test_the_chart_has_a_point_for_each_finished_run_and_one_dense_line() -> None:
    def run(name: str, error: float | None, before: float = 6.0, metric: str = "error") -> RunBeside:
        summary = {"macs_ratio": 2.0, "error_before": before, "error_after": error, "metric": metric}
        return of_events(name, {"event": "start"}, {"event": "done", "summary": summary})

    chart = error_against_macs([run("a", 7.0), run("b", 8.0), run("c", None), run("d", 0.5, metric="loss")])
    assert chart.count("<circle") == 2 * 2 and "dense 6.00 %" in chart and ">d<" not in chart
    assert "dense" not in error_against_macs([run("a", 7.0), run("b", 8.0, before=5.0)]), "two dense networks"
    losses = error_against_macs([run("d", 0.5, 0.4, "loss"), run("e", 0.6, 0.4, "loss")])
    assert "d: 0.5000" in losses and "%" not in losses
    assert error_against_macs([run("c", None)]) == "" and error_against_macs([]) == ""


def test_what_a_run_came_to_as_plain_values(tmp_path: Path) -> None:
    told = beside(tmp_path, "one").to_dict()
    assert (told["macs_ratio"], told["params_ratio"], told["measured_latency_ratio"]) == (2.1, 2.0, 1.4)
    assert (told["error_after"], told["val_error_before"], told["val_error_after"]) == (6.95, 6.8, 7.02)
    assert told["verdict"]["level"] == "good" and told["finished"] and len(told["channels"]) == 5
    bare = of_events("bare").to_dict()
    assert bare["verdict"] is None and bare["error_after"] is None and not bare["finished"]
