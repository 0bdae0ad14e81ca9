from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rbprune.errors import CheckpointError
from rbprune.logging.events import EventLog
from rbprune.report import write_report
from rbprune.report.html import moment

from .fake import site_names, write_run

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Text and attributes of a page, whose tags must nest."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert not self._open
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.words.append(data)


def report_of(folder: Path) -> Path:
    """The page of the run in ``folder``."""
    return write_report(folder / "report.html", events=folder / "events.jsonl", settings=folder / "config.toml")


def test_the_figures_are_in_the_page(finished: Path) -> None:
    page = Page(report_of(finished))
    for figure in ("2.10x", "125.5 M → 59.8 M", "2.00x", "6.61 % → 6.95 %", "+0.34 points", "74.2", "1 h 31 min"):
        assert figure in page.text
    for name in site_names(25):
        assert page.text.count(name) >= 4
    for shown in ("resnet56-cifar", "epochs = 10 # <at most>", "2.13.0+cpu", "'data.root=/my data'"):
        assert shown in page.text
    assert f"rbprune.load('{finished}', FreshModel())" in page.text
    assert "interrupted" not in page.text and "damaged" not in page.text
    assert sum(attrs.get("class") == "histogram" for _, attrs in page.tags) == 25


@pytest.mark.parametrize(("sites", "limit"), [(3, 60_000), (200, 300_000)])
def test_the_page_is_light(tmp_path: Path, sites: int, limit: int) -> None:
    write_run(tmp_path, sites=sites, per_stage=sites)
    assert report_of(tmp_path).stat().st_size < limit


def test_the_page_needs_nothing_else(finished: Path) -> None:
    path = report_of(finished)
    page = Page(path)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert not [attrs for _, attrs in page.tags if {"src", "href", "xlink:href"} & attrs.keys()]
    assert not re.search(r"url\(|@import", path.read_text())
    assert "prefers-color-scheme: dark" in path.read_text()
    assert [item.name for item in finished.iterdir() if "report" in item.name] == ["report.html"]


def test_everything_is_escaped(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>\"\ud800"
    log = EventLog(tmp_path / "events.jsonl")
    log.write(
        "start",
        model=evil,
        method=evil,
        seed=evil,
        version=evil,
        command=[evil],
        config_toml=evil,
        sites={evil: 4},
        layers=[{"name": evil, "macs": 1}],
    )
    log.write("epoch", phase=evil, epoch=evil, epochs=evil, loss=1.0, val_error=3.0, dense_epochs=1.0)
    log.write(
        "stage",
        stage=0,
        sites=[evil, "b"],
        channels={evil: [4, 2]},
        values={evil: [0.1] * 4},
        guarded=[evil],
    )
    log.write("warning", message=evil)
    log.write("done", summary={"versions": {evil: evil}, "dense_epochs": {evil: 1.0}})
    page = Page(report_of(tmp_path))
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.text.count("<script>alert('x')</script>") >= 10


def test_an_unfinished_run_says_how_to_go_on(tmp_path: Path) -> None:
    write_run(tmp_path, until="finetune")
    page = Page(report_of(tmp_path))
    assert f"Still running / interrupted: rbprune resume {tmp_path}" in page.text
    assert "Reached fine-tune, epoch 3 of 40." in page.text and "MACs so far" in page.text


def test_damaged_lines_are_noted(finished: Path) -> None:
    log = finished / "events.jsonl"
    lines = log.read_text().splitlines()
    lines[5] = lines[5][:30]
    log.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:200])
    page = Page(report_of(finished))
    assert "2 damaged lines of events.jsonl were skipped." in page.text
    assert "Still running / interrupted" in page.text


def test_every_field_may_be_missing_or_null_or_nonsense(tmp_path: Path) -> None:
    write_run(tmp_path, sites=2)
    log = tmp_path / "events.jsonl"
    events: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    kinds = {event["event"]: event for event in events}
    summary = kinds["done"]["summary"]
    for value in (None, "?", [None], {"x": None}, -1):
        changes: list[tuple[str, dict[str, Any]]]
        changes = [(kind, {key: value}) for kind, event in kinds.items() for key in event.keys() - {"event"}]
        changes += [("done", {"summary": {**summary, key: value}}) for key in summary]
        for kind, change in changes:
            log.write_text(
                "\n".join(json.dumps(event | (change if name == kind else {})) for name, event in kinds.items())
            )
            Page(report_of(tmp_path))


@pytest.mark.parametrize(
    "content", ["", '{"event": "start"}', '{"event": "done"}', '{"event": "epoch"}', '{"event": "stage"}']
)
def test_a_bare_log_still_makes_a_page(tmp_path: Path, content: str) -> None:
    (tmp_path / "events.jsonl").write_text(content)
    (tmp_path / "config.toml").write_text("seed = 5")
    page = Page(report_of(tmp_path))
    assert "seed = 5" in page.text
    assert ("interrupted" in page.text) == ("done" not in content)


def test_a_folder_without_a_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no events\.jsonl in .*; give the folder of a run"):
        report_of(tmp_path)


@pytest.mark.parametrize("until", ["done", "finetune"])
def test_a_loss_is_not_shown_as_per_cent(tmp_path: Path, until: str) -> None:
    write_run(tmp_path, until=until)
    log = tmp_path / "events.jsonl"
    events = [json.loads(line) for line in log.read_text().splitlines()]
    for event in events:
        named = event.get("summary", event) if event["event"] in ("epoch", "stage", "done") else {}
        named["metric"] = "loss"
    log.write_text("\n".join(map(json.dumps, events)) + "\n")
    page = Page(report_of(tmp_path)).text
    assert "Validation loss" in page and "Val. loss" in page and "validation loss while fine-tuning" in page
    assert ("6.6100 → 6.9500" in page and "+0.3400 · validation 7.0200" in page) == (until == "done")
    assert "dense model 6.6100" in page
    assert "6.61 %" not in page and "points" not in page and "rror" not in page


@pytest.mark.parametrize(("seconds", "shown"), [(0, ""), (None, ""), (1e300, ""), (86400, "1970-01-02 00:00 UTC")])
def test_a_moment_is_shown_or_left_out(seconds: object, shown: str) -> None:
    assert moment(seconds) == shown


def test_a_broken_page_is_never_left_behind(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = report_of(finished).read_bytes()

    def fail(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr("rbprune.utils.files.os.replace", fail)
    with pytest.raises(OSError, match="no room"):
        report_of(finished)
    assert (finished / "report.html").read_bytes() == before
    assert not [item for item in finished.iterdir() if item.suffix == ".tmp"]
