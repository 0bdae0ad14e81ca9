"""``rbprune reproduce``: plans, figures of given runs, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rbprune.cli.app import app
from rbprune.errors import CheckpointError, ConfigError
from tests.cli.command import Refused
from tests.reproduce.small import small_table


def call(*words: str) -> None:
    app(list(words), result_action="return_value")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_table(tmp_path_factory)


@pytest.mark.parametrize(
    ("name", "override", "complaint"),
    [
        ("cifar10", "prune.method=l1", "has a row for each prune.method; .*rbprune compare vgg16-cifar10"),
        ("gpu", "seed=1", "'gpu' has no runs with settings; leave out --set seed=1"),
        ("cifar10", "prune.epocs=1", "unknown key"),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_settings_that_the_table_decides_are_refused(
    name: str, override: str, complaint: str, dry: list[str], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        call("reproduce", name, "--set", override, "--out", str(tmp_path / "out"), *dry)
    assert not (tmp_path / "out").exists()


def test_figures_are_told_in_words_as_well(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("reproduce", "rates", "--run", str(folder / "demo-rbp"), "--out", str(tmp_path), "--json")
    (figure,) = json.loads(capsys.readouterr().out)["figures"]
    assert "lie between 0.1 and 0.9" in figure["note"]
    assert figure["note"] in (tmp_path / "rates.md").read_text()
    assert list(figure["parts"]) == ["conv1", "conv2", "fc1"]


def test_runs_of_one_name_are_told_apart(folder: Path, tmp_path: Path) -> None:
    for seed in ("seed0", "seed1"):
        shutil.copytree(folder / "demo-rbp", tmp_path / seed / "rbp")
    words = ["--run", str(tmp_path / "seed0" / "rbp"), "--run", str(tmp_path / "seed1" / "rbp")]
    call("reproduce", "finetune", *words, "--out", str(tmp_path / "out"))
    page = (tmp_path / "out" / "finetune.html").read_text()
    assert "seed0/rbp" in page
    assert "seed1/rbp" in page


def test_the_plan_says_which_data_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbprune.reproduce.calibrate.CALIBRATION_SECONDS", 0.0)
    monkeypatch.setattr("rbprune.reproduce.calibrate.MOST_PIXELS", 0)
    call("reproduce", "cifar10", "--dry-run", "--json", "--set", f"data.path={tmp_path}", "--set", "runtime.threads=1")
    plan = json.loads(capsys.readouterr().out)
    (data,) = plan["data"]
    assert not data["found"] and str(tmp_path) in data["note"]
    assert data["images"] == 48_000
    rbp = [cost for cost in plan["costs"] if cost["run"] == "vgg16-cifar10-rbp"]
    assert rbp[0]["phase"] == "prune, 15 stages"
    assert sum(cost["phase"] == "pretrain" for cost in plan["costs"]) == 1


def test_figures_of_given_runs(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [word for name in ("demo-rbp", "demo-ibp") for word in ("--run", str(folder / name))]
    call("reproduce", "finetune", *given, "--out", str(tmp_path))
    assert f"page: {tmp_path / 'finetune.html'}" in capsys.readouterr().out
    page = (tmp_path / "finetune.html").read_text()
    assert "demo-rbp" in page and "demo-ibp" in page
    with pytest.raises(ConfigError, match="'cifar10' is a table"):
        call("reproduce", "cifar10", "--run", str(folder / "demo-rbp"))
    with pytest.raises(CheckpointError, match="is no run folder"):
        call("reproduce", "rates", "--run", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("reproduce", "cifar10", "--set", "preset=papier", "--out", "x"), "no preset 'papier'"),
    ],
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)
