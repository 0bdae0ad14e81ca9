"""Runs of a series: done once, resumed, told apart when they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rbprune.errors import ConfigError
from rbprune.runs import series
from rbprune.runs.folder import RunFolder
from rbprune.runs.series import dense_weights, reason, run_once
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import Settings
from tests.runs.quick import SMALL, quiet


def test_a_run_is_started_once_and_resumed_from_then_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def start(config: Settings, out: Path, **options: Any) -> dict[str, Any]:
        calls.append("start")
        RunFolder(out).begin(config)
        return {}

    monkeypatch.setattr(series, "start", start)
    monkeypatch.setattr(series, "resume", lambda out, **options: calls.append("resume") or {})

    def settings() -> Settings:
        calls.append("settings")
        return load_recipe("demo", SMALL)

    for _ in range(2):
        run_once(tmp_path / "run", settings, title="a run", console=quiet(), command=[])
    assert calls == ["settings", "start", "resume"]


def test_the_dense_network_is_trained_only_where_the_recipe_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[str] = []
    monkeypatch.setattr(series, "start", lambda config, out, **options: tasks.append(config.task) or {})
    out, given = tmp_path / "dense", (*SMALL, "model.weights=mine.safetensors")
    assert dense_weights("demo", given, out, title="dense", console=quiet()) == []
    assert tasks == []
    found = dense_weights("demo", SMALL, out, title="dense", console=quiet())
    assert found == [f"model.weights={out / 'model.safetensors'}"]
    assert tasks == ["train"]


def test_a_foreseen_error_is_its_message_and_another_leaves_its_traceback(tmp_path: Path) -> None:
    story = tmp_path / "runs" / "failed.txt"
    assert reason(ConfigError("wrong"), story) == "wrong"
    assert not story.exists()
    try:
        _ = 1 // 0
    except ZeroDivisionError as error:
        assert reason(error, story) == f"ZeroDivisionError: {error} (see {story})"
    assert "_ = 1 // 0" in story.read_text()
