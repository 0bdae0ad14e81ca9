"""``rbprune watch``: a real run followed by another process, and runs that are over."""

from __future__ import annotations

import io
import json
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from rbprune.cli.watch import view
from rbprune.runs.folder import RunFolder
from rbprune.runs.watch import RunWatch
from tests.cli.command import Refused, run
from tests.report.fake import write_run
from tests.runs.quick import overrides


def started(folder: Path) -> subprocess.Popen[bytes]:
    """A process that prunes, as the demo does but quickly."""
    command = [sys.executable, "-m", "rbprune", "prune", "demo", "--out", str(folder), *overrides()]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (folder / "config.toml").is_file():
        assert child.poll() is None
        time.sleep(0.05)
    return child


def test_a_run_is_followed_to_its_end_and_its_page_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child = started(tmp_path / "run")
    try:
        assert run("watch", str(tmp_path / "run"), "--html", "--every", "0.05") == 0
    finally:
        child.kill()
        child.wait()
    shown = capsys.readouterr().out
    assert [int(number) for number in re.findall(r"^stage (\d)/3", shown, re.MULTILINE)] == [1, 2, 3]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert f"finished, {summary['verdict']['level']}: {summary['verdict']['text']}" in shown
    page = (tmp_path / "run" / "report.html").read_text()
    assert f"{summary['macs_ratio']:.2f}x" in page and 'http-equiv="refresh"' not in page
    assert RunFolder(tmp_path / "run").check_files() == [], "the sums fit the page that was written last"


def test_a_run_whose_process_is_killed_is_said_to_be_dead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text("")
    write_run(tmp_path, sites=3, until="stage")
    child = subprocess.Popen(["sleep", "600"])
    (tmp_path / "run.lock").write_text(
        json.dumps({"host": socket.gethostname(), "pid": child.pid, "began": None, "command": ["rbprune"]})
    )

    def kill() -> None:
        while not (tmp_path / "report.html").is_file():  # which is written while the process lives
            time.sleep(0.02)
        child.kill()
        child.wait()

    killer = threading.Thread(target=kill)
    killer.start()
    assert run("watch", str(tmp_path), "--html", "--every", "0.05") == 1
    killer.join()
    shown = capsys.readouterr().out
    assert f"resnet56-cifar by rrbp: running (process {child.pid})" in shown
    assert f"process {child.pid}, which worked on it, is gone" in shown
    assert f"go on with: rbprune resume {tmp_path}" in shown
    page = (tmp_path / "report.html").read_text()
    assert "unfinished" in page and 'http-equiv="refresh"' not in page, "nothing more will come"


def test_json_tells_once_where_a_run_stands(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("watch", str(whole), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    summary = json.loads((whole / "summary.json").read_text())
    assert told["state"] == "finished" and told["stages_done"] == told["stages"] == 3
    assert told["ratios"]["macs"] == summary["macs_ratio"] and told["val_error_before"] == summary["val_error_before"]


@pytest.mark.parametrize("until", ["stage", "finetune", "done"])
def test_what_the_terminal_shows_while_a_run_goes(tmp_path: Path, until: str) -> None:
    (tmp_path / "config.toml").write_text("")
    write_run(tmp_path, sites=3, until=until)
    log = tmp_path / "events.jsonl"
    log.write_text(log.read_text().replace('"settled"', '"forecast": 0.02, "measured": 0.03, "settled"'))
    (tmp_path / "run.lock").write_text(json.dumps({"host": "far", "pid": 7, "began": None, "command": []}))
    console = Console(file=io.StringIO(), width=120)
    console.print(view(RunWatch(tmp_path).status()))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "resnet56-cifar by rrbp: elsewhere (process 7 on far)" in shown
    assert "forecast +0.02, measured +0.03 nats per example" in shown and "dense 6.80 %" in shown
    assert f"{1 if until == 'stage' else 3} of 3" in shown
    assert ("about 37 min 37 s left" in shown) == (until == "finetune")


def test_what_a_log_holds_cannot_move_the_cursor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text("")
    events = [{"event": "start", "model": "a\x1b[2J"}, {"event": "stage", "stage": 0, "channels": {"b\x1b[2J": [2, 1]}}]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert run("watch", str(tmp_path)) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_a_folder_without_a_run_is_refused(refused: Refused) -> None:
    refused(("watch", "nowhere"), "nowhere is no run folder")
