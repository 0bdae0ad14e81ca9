"""What is said of a run that ends before its end."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from rbprune.errors import ProcessesError, WriteError
from rbprune.runs.folder import RunFolder
from rbprune.runs.going_on import goes_on_after_restart, not_a_run, saying_how_to_go_on
from rbprune.settings.recipe import load_recipe
from rbprune.utils.interrupt import Interrupted, StopNow


def test_a_signal_is_told_with_its_code_and_the_next_command(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "a run")
    with (
        pytest.raises(Interrupted, match="give the same command again: nothing is kept") as stop,
        saying_how_to_go_on(run),
    ):
        raise StopNow(signal.SIGTERM)
    assert stop.value.exit_code == 143
    run.begin(load_recipe("demo"))
    with (
        pytest.raises(Interrupted, match=r"interrupted; go on with: rbprune resume '.*a run'") as stop,
        saying_how_to_go_on(run),
    ):
        raise KeyboardInterrupt
    assert stop.value.exit_code == 130
    run.summary_file.write_text("{}")
    with pytest.raises(Interrupted, match="is complete"), saying_how_to_go_on(run):
        raise StopNow(signal.SIGTERM)


def test_what_cannot_be_written_is_told_with_the_next_command(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.begin(load_recipe("demo"))
    with (
        pytest.raises(WriteError, match=rf"^cannot write x: full; then go on with: rbprune resume {run}$"),
        saying_how_to_go_on(run),
    ):
        raise WriteError("cannot write x: full")


def test_of_a_run_that_was_killed_at_its_start_the_command_is_known(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert "is no run folder" in str(not_a_run(run))
    fields = {"host": "here", "pid": 1, "began": None, "command": ["rbprune", "prune", "my recipe.toml", "--out", "x"]}
    run.lock_file.write_text(json.dumps(fields))
    said = str(not_a_run(run))
    assert said.startswith(f"nothing was trained yet in {run}")
    assert said.endswith("give again: rbprune prune 'my recipe.toml' --out x")


def test_a_restarted_command_goes_on_with_the_run_that_it_began_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, words = RunFolder(tmp_path / "run"), ["rbprune", "prune", "demo"]
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert not goes_on_after_restart(run, words), "nothing was begun"
    run.begin(load_recipe("demo"))
    assert not goes_on_after_restart(run, words), "nobody knows by which command"
    run.events_file.write_text(json.dumps({"event": "start", "command": words}) + "\n")
    assert goes_on_after_restart(run, words) and not goes_on_after_restart(run, [*words, "--set", "seed=1"])
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    assert not goes_on_after_restart(run, words)


def test_a_lost_process_is_told_with_the_next_command(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.begin(load_recipe("demo"))
    with pytest.raises(ProcessesError, match=rf"^lost; go on with: rbprune resume {run}$"), saying_how_to_go_on(run):
        raise ProcessesError("lost")
