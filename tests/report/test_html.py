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
    assert "validation 6.80 % → 7.02 %" in page.text and "9.1 → 6.5 ms · cpu, 2 threads" in page.text
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
    assert f"Still running, or interrupted: rbprune resume {tmp_path}" in page.text
    assert "Reached fine-tune, epoch 3 of 40." in page.text and "MACs so far" in page.text


def test_damaged_lines_are_noted(finished: Path) -> None:
    log = finished / "events.jsonl"
    lines = log.read_text().splitlines()
    lines[5] = lines[5][:30]
    log.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:200])
    page = Page(report_of(finished))
    assert "2 damaged lines of events.jsonl were skipped." in page.text
    assert "Still running, or interrupted" in page.text


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
        named.pop("verdict", None)
    log.write_text("\n".join(map(json.dumps, events)) + "\n")
    page = Page(report_of(tmp_path)).text
    assert "Validation loss while fine-tuning" in page and "Val. loss" in page
    assert ("6.6100 → 6.9500" in page and "+0.3400 · validation 6.8000 → 7.0200" in page) == (until == "done")
    assert "dense network 6.8000" in page, "on the validation data, as the curve"
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


def cards(folder: Path) -> dict[str, str]:
    """What the figures at the top of the page of the run in ``folder`` say, by their names in the summary."""
    text = report_of(folder).read_text()
    found = re.findall(r'<div class="card figure[^"]*" data-figure="(\w+)">(.*?)</div>', text, re.DOTALL)
    return {name: " ".join(re.sub(r"<[^>]*>", " ", content).split()) for name, content in found}


def test_validation_is_compared_with_the_dense_network_on_the_same_data(tmp_path: Path) -> None:
    write_run(tmp_path, until="finetune")
    last = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()][-1]["val_error"]
    assert f"6.80 % → {last:.2f} %" in cards(tmp_path)["val_error"], "not 6.61 %, its error on the test data"
    page = Page(tmp_path / "report.html").text
    assert "dense network 6.80 %" in page and "dense network 6.61 %" not in page


def test_a_run_that_does_not_know_the_dense_validation_error_draws_no_line(tmp_path: Path) -> None:
    write_run(tmp_path, until="finetune")
    log = tmp_path / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line for line in lines if '"event": "dense"' not in line))
    assert 'class="reference"' not in report_of(tmp_path).read_text()


@pytest.mark.parametrize(
    ("level", "kind"), [("good", "good"), ("bad", "bad"), ("unknown", "warning"), ("of a later version", "warning")]
)
def test_the_verdict_comes_first_and_has_a_colour(finished: Path, level: str, kind: str) -> None:
    log = finished / "events.jsonl"
    log.write_text(log.read_text().replace('"level": "good"', f'"level": "{level}"'))
    text = report_of(finished).read_text()
    body = text[text.index("<main>") :]
    first = re.search(r"<(\w+) class=\"verdict (\w+)\"", body)
    assert first is not None and first[2] == kind and body.index("verdict") < body.index("<h1")
    assert f".verdict.{kind}" in text or kind == "warning"
    assert "2.10x fewer MACs and 2.00x fewer parameters" in Page(finished / "report.html").text


def test_sites_that_the_method_leaves_alone_are_not_drawn_as_removed(finished: Path) -> None:
    text = report_of(finished).read_text()
    alone = text[text.index("Not pruned") : text.index("</section>", text.index("Not pruned"))]
    assert "conv1" in alone and "linear" in alone and alone.count('class="closed"') == 2
    assert 'style="width' in alone and "→" not in alone
    channels = sum(16 * 2 ** (index * 3 // 25) for index in range(25))
    assert f"{channels} → " in cards(finished)["time"], "without the 26 channels of the two"


def test_a_bar_of_a_stage_that_has_not_come_is_not_that_of_a_removed_layer(tmp_path: Path) -> None:
    write_run(tmp_path, sites=5, until="stage")
    text = report_of(tmp_path).read_text()
    rows = re.findall(r'<div class="row">.*?</div>', text)
    assert len(rows) == 5 and ['class="waits"' in row for row in rows] == [False, True, True, True, True]


def test_latency_stands_beside_macs(finished: Path) -> None:
    assert list(cards(finished)) == ["macs", "measured_latency", "params", "error", "cost", "time"]
    log = finished / "events.jsonl"
    log.write_text(log.read_text().replace('"measured_latency"', '"of_old"'))
    assert "measured_latency" not in cards(finished)


def test_every_word_that_is_underlined_is_explained_in_the_list(finished: Path) -> None:
    page = Page(report_of(finished))
    ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    terms = [attrs for _, attrs in page.tags if attrs.get("class") == "term"]
    assert {attrs["aria-describedby"] for attrs in terms} <= ids
    assert all(attrs["tabindex"] == "0" and attrs["data-tip"] in page.text for attrs in terms)
    words = {"price", "nats", "site", "stage", "rate", "dense-epoch", "MACs", "verdict"}
    assert {f"word-{word}" for word in words} <= {attrs["aria-describedby"] for attrs in terms}


def test_only_the_page_of_an_unfinished_run_is_read_anew(tmp_path: Path) -> None:
    write_run(tmp_path, until="finetune")
    files = {"events": tmp_path / "events.jsonl", "settings": tmp_path / "config.toml"}
    shown = write_report(tmp_path / "report.html", **files, refresh=7).read_text()
    assert '<meta http-equiv="refresh" content="7">' in shown
    assert "refresh" not in write_report(tmp_path / "report.html", **files).read_text()
    files["events"].unlink()
    write_run(tmp_path)
    assert 'http-equiv="refresh"' not in write_report(tmp_path / "report.html", **files, refresh=7).read_text()


def test_a_dense_run_has_no_sites_to_show(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.write("start", model="lenet5", sites={"conv1": 20}, stages=[], config={"task": "train"})
    log.write("done", summary={"error_after": 0.7, "channels": {}})
    page = Page(report_of(tmp_path)).text
    assert "conv1" not in page and "before and after" not in page
