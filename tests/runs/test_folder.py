"""The folder of a run: who knows its file names, and in which state it says it is."""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import rbprune
from rbprune import models
from rbprune.errors import CheckpointError, ConfigError, DamagedError
from rbprune.runs.folder import RunFolder
from rbprune.settings.recipe import load_recipe
from rbprune.utils import files
from rbprune.utils.live_processes import mark

SOURCES = Path(rbprune.__file__).parent
NAMES = {
    path.name
    for path in (
        RunFolder("x").settings_file,
        RunFolder("x").events_file,
        RunFolder("x").tensorboard,
        RunFolder("x").checkpoints,
        RunFolder("x").plan_file,
        RunFolder("x").weights_file,
        RunFolder("x").report_file,
        RunFolder("x").summary_file,
        RunFolder("x").sums_file,
        RunFolder("x").lock_file,
    )
}
LATER: set[str] = set()
"""Modules below ``runs`` that are still to be handed paths instead of the folder; this set shrinks to nothing."""
EVENTS = [{"event": "start"}, {"event": "epoch", "epoch": 1}, {"event": "epoch", "epoch": 2}]


def spelled(source: Path) -> Iterator[str]:
    """File names of a run that are written out in a module, other than in a sentence."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and Path(node.value).name in NAMES:
            yield f"{source.relative_to(SOURCES)}:{node.lineno}: {node.value!r}"


def test_its_files_have_the_names_that_old_runs_have() -> None:
    assert {
        "config.toml",
        "events.jsonl",
        "tb",
        "checkpoints",
        "plan.json",
        "model.safetensors",
        "report.html",
        "summary.json",
        "SHA256SUMS",
        "run.lock",
    } == NAMES


def test_nobody_else_spells_a_file_name_of_a_run() -> None:
    owner = SOURCES / "runs" / "folder.py"
    others = [p for p in sorted(SOURCES.rglob("*.py")) if p != owner and p.relative_to(SOURCES).as_posix() not in LATER]
    assert [place for source in others for place in spelled(source)] == []
    assert len(list(spelled(owner))) == len(NAMES), "the search finds what there is"


def test_it_is_a_run_from_its_settings_on_and_finished_with_its_summary(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a" / "b")
    assert not run.is_run and not run.is_finished and run.read_summary() is None
    with pytest.raises(ConfigError, match=r"is no run folder \(it has no config.toml\)"):
        run.read_settings()
    with pytest.raises(CheckpointError, match=r"is no run folder \(it has no events.jsonl\)"):
        run.read_events()
    config = load_recipe("demo", ["seed=7"])
    run.begin(config)
    assert run.is_run and not run.is_finished
    assert run.read_settings() == config
    run.write_events(EVENTS)
    run.checkpoints.mkdir()
    assert not run.has_checkpoint
    (run.checkpoints / "ckpt-000000").mkdir()
    assert run.has_checkpoint
    run.finish({"seed": 7})
    assert run.is_finished and run.read_summary() == {"seed": 7}
    assert not run.checkpoints.exists()
    assert "<html" in run.report_file.read_text()


def test_a_folder_that_holds_something_is_refused_with_advice(tmp_path: Path) -> None:
    RunFolder(tmp_path).check_empty("never said")
    RunFolder(tmp_path / "new").check_empty("never said")
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ConfigError, match="exists and is not empty; go away"):
        RunFolder(tmp_path).check_empty("go away")
    with pytest.raises(ConfigError, match="exists and is not empty"):
        RunFolder(tmp_path / "mine.txt").check_empty("go away")


def test_a_torn_line_is_left_out_and_other_damage_is_told(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.write_events(EVENTS)
    with run.events_file.open("a") as file:
        file.write('{"event": "epo')
    assert run.read_events() == EVENTS
    lines = [json.dumps(event) for event in EVENTS]
    run.events_file.write_text("\n".join([lines[0], lines[1][:-1] + "{", lines[2], lines[0][:5]]))
    with pytest.warns(UserWarning, match=r"events.jsonl is damaged: 1 line is left out; copy it anew"):
        assert run.read_events() == [EVENTS[0], EVENTS[2]]
    run.write_events(EVENTS[:2])
    assert [json.loads(line) for line in run.events_file.read_text().splitlines()] == EVENTS[:2]
    run.forget_events()
    run.forget_events()
    assert not run.events_file.exists()


def test_the_summary_is_the_last_thing_to_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    plain = files.write_atomic

    def watched(path: Path, content: str | bytes) -> Path:
        written.append(path.name)
        return plain(path, content)

    monkeypatch.setattr("rbprune.runs.folder.write_atomic", watched)
    run, model = RunFolder(tmp_path), models.build("lenet5")
    run.begin(load_recipe("demo"))
    run.write_events(EVENTS)
    run.write_network(model, rbprune.trace(model, torch.zeros(1, 1, 28, 28)).plan())
    run.finish({})
    assert written == ["config.toml", "events.jsonl", "model.safetensors", "plan.json", "SHA256SUMS", "summary.json"]
    assert run.report_file.stat().st_mtime_ns <= run.summary_file.stat().st_mtime_ns


def finished(path: Path) -> RunFolder:
    run = RunFolder(path)
    run.begin(load_recipe("demo"))
    run.write_events(EVENTS)
    run.tensorboard.mkdir()
    (run.tensorboard / "curves").write_text("x")
    run.finish({"seed": 7})
    return run


def test_the_sums_of_all_files_are_kept_as_sha256sum_reads_them(tmp_path: Path) -> None:
    run = finished(tmp_path)
    names = {"config.toml", "events.jsonl", "report.html", "tb/curves", "summary.json"}
    assert (run.read_sums() or {}).keys() == names
    done = subprocess.run(["sha256sum", "-c", run.sums_file.name], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count(": OK"), done.stderr) == (0, len(names), "")
    assert run.check_files() == []


@pytest.mark.parametrize("name", ["config.toml", "events.jsonl", "summary.json", "SHA256SUMS"])
def test_a_damaged_file_of_a_finished_run_is_named(tmp_path: Path, name: str) -> None:
    run = finished(tmp_path)
    file = tmp_path / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    with pytest.raises(DamagedError, match=rf"{name} cannot be read: it is damaged.*copy it anew, or repeat the run"):
        run.check_files()
    reading = {"config.toml": run.read_settings, "events.jsonl": run.read_events}.get(name, run.read_summary)
    with pytest.raises(DamagedError, match=name):
        reading()


def test_a_page_that_was_changed_is_told_and_the_rest_can_be_used(tmp_path: Path) -> None:
    run = finished(tmp_path)
    run.report_file.write_text("mine")
    (run.tensorboard / "curves").unlink()
    assert run.check_files() == [f"{run.report_file} is not what the run wrote: it was changed or damaged since"]


def test_what_is_gone_of_a_network_is_told(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    run.report_file.unlink()
    assert run.check_files() == []
    run.events_file.unlink()
    run.events_file.symlink_to("/dev/zero")
    assert run.check_files() == [f"{run.events_file} is gone, or no file any more: the run wrote one; copy it anew"]


@pytest.mark.parametrize("content", ["", "{", "[1]", "[" * 100_000])
def test_a_summary_of_before_there_were_sums_is_told_to_be_damaged_too(tmp_path: Path, content: str) -> None:
    run = finished(tmp_path)
    run.sums_file.unlink()
    run.summary_file.write_text(content)
    with pytest.raises(DamagedError, match="summary.json cannot be read: it is damaged, it is no"):
        run.read_summary()


def test_what_a_kill_at_the_start_leaves_is_nothing(tmp_path: Path) -> None:
    (tmp_path / ".config.toml.999999999.tmp").write_text("hal")
    (tmp_path / "run.lock").write_text("{}")
    run = RunFolder(tmp_path)
    run.check_empty("never said")
    run.remove_leftovers()
    assert [path.name for path in tmp_path.iterdir()] == ["run.lock"]


def test_leftovers_are_what_the_dead_left_and_the_checkpoints_of_a_finished_run(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.begin(load_recipe("demo"))
    (run.checkpoints / "ckpt-000000").mkdir(parents=True)
    (run.checkpoints / ".writing").mkdir()
    (tmp_path / f".plan.json.{mark()}.tmp").write_text("of a live process")
    (tmp_path / ".plan.json.999999999.tmp").write_text("of a dead one")
    (tmp_path / ".mine.tmp").write_text("of nobody")
    run.remove_leftovers()
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.toml",
        "checkpoints",
        f".plan.json.{mark()}.tmp",
        ".mine.tmp",
    }
    assert [path.name for path in run.checkpoints.iterdir()] == ["ckpt-000000"]
    run.summary_file.write_text("{}")
    assert run.leftovers() == [run.checkpoints]
    run.remove_leftovers()
    assert not run.checkpoints.exists()
