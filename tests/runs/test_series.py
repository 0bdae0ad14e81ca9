"""Runs of a series: done once, resumed, told apart when they fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rbprune.errors import ConfigError
from rbprune.runs import series
from rbprune.runs.folder import RunFolder
from rbprune.runs.series import claim, computing_like, dense_weights, reason, run_once
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


def test_a_run_computes_as_another_where_its_settings_leave_it_open(tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "other")
    recipe = load_recipe("demo", SMALL)
    assert computing_like(recipe, other) == recipe, "there is no other yet"
    other.begin(load_recipe("demo", ["runtime.precision=bf16-mixed", "runtime.channels_last=true", "seed=5"]))
    alike = computing_like(recipe, other)
    assert (alike.runtime.precision, alike.runtime.channels_last) == ("bf16-mixed", True)
    assert alike.changed(runtime=recipe.runtime) == recipe, "nothing else is taken over"
    for given, wanted in (
        ("runtime.precision=32-true", ("32-true", True)),
        ("runtime.channels_last=false", ("bf16-mixed", False)),
    ):
        runtime = computing_like(load_recipe("demo", [given]), other).runtime
        assert (runtime.precision, runtime.channels_last) == wanted


def test_a_foreseen_error_is_its_message_and_another_leaves_its_traceback(tmp_path: Path) -> None:
    story = tmp_path / "runs" / "failed.txt"
    assert reason(ConfigError("wrong"), story) == "wrong"
    assert not story.exists()
    try:
        _ = 1 // 0
    except ZeroDivisionError as error:
        assert reason(error, story) == f"ZeroDivisionError: {error} (see {story})"
    assert "_ = 1 // 0" in story.read_text()


def test_a_folder_belongs_to_one_series(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".request.json.17.tmp").write_text("half")
    claim(out, {"recipe": "demo", "ratios": (1.5, 2.0)}, "frontier")
    claim(out, {"recipe": "demo", "ratios": (1.5, 2.0)}, "frontier")
    with pytest.raises(ConfigError, match=r"holds a frontier with another ratios \(\[1\.5, 2\.0\], now \[3\.0\]\)"):
        claim(out, {"recipe": "demo", "ratios": (3.0,)}, "frontier")
    (tmp_path / "other").write_text("a file")
    with pytest.raises(ConfigError, match="other exists and holds no frontier; choose another --out"):
        claim(tmp_path / "other", {}, "frontier")
    with pytest.raises(ConfigError, match="exists and holds no frontier"):
        claim(tmp_path, {}, "frontier")


def test_the_dense_network_is_trained_whatever_the_method_must_be_told(tmp_path: Path) -> None:
    given = (*SMALL, "prune.method=uniform", "pretrain.epochs=0")
    dense_weights("demo", given, tmp_path / "dense", title="dense", console=quiet())
    assert RunFolder(tmp_path / "dense").is_finished
