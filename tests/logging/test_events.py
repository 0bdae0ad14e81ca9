from __future__ import annotations

import json
from pathlib import Path

import torch

from rbprune.logging.events import EventLog, read_events, scan_events


def test_roundtrip(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "new" / "events.jsonl")
    first = log.write("start", seed=0, sites={"a": 16}, error_before=None)
    log.write("warning", message="a\nb")
    assert first["event"] == "start" and first["time"] > 0
    assert read_events(tmp_path / "new" / "events.jsonl") == log.events
    assert log.events[1]["message"] == "a\nb"


def test_memory_only() -> None:
    log = EventLog(None)
    log.write("start")
    assert [event["event"] for event in log.events] == ["start"]


def test_values_become_plain_json(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    record = log.write(
        "stage", rates={"a": torch.tensor([0.25, float("nan")])}, loss=float("inf"), at=tmp_path, s={2, 1}
    )
    assert record["rates"] == {"a": [0.25, None]}
    assert record["loss"] is None and record["at"] == str(tmp_path) and record["s"] == [1, 2]
    assert json.loads((tmp_path / "events.jsonl").read_text(), parse_constant=lambda _: 1 / 0) == record


def test_a_missing_file_has_no_events(tmp_path: Path) -> None:
    assert read_events(tmp_path / "events.jsonl") == []


def test_damaged_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"event": "start"}\n{"ev\n\n\xff\xfe\x00\n[1]\n{"time": 1}\n{"event": "done"}\n{"event": "wa')
    scan = scan_events(path)
    assert [event["event"] for event in scan.events] == ["start", "done"]
    assert scan.damaged == 5


def test_a_resumed_log_keeps_what_was_there_and_survives_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"time": 1.0, "event": "start"}\n{"time": 2.0, "eve')
    log = EventLog(path)
    log.write("resume", step=3)
    assert [event["event"] for event in log.events] == ["start", "resume"]
    assert read_events(path) == log.events
