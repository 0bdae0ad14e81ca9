"""``rbprune report``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from rbprune.runs.folder import RunFolder
from tests.cli.command import Refused, run
from tests.report.fake import write_run


def test_one_run_gets_its_page_again(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    (folder / "report.html").unlink()
    assert run("report", str(folder)) == 0
    assert f"page: {folder / 'report.html'}" in capsys.readouterr().out
    assert RunFolder(folder).check_files() == []
    assert run("report", str(folder), "--out", str(tmp_path / "elsewhere.html"), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    summary = json.loads((folder / "summary.json").read_text())
    assert told["page"] == str(tmp_path / "elsewhere.html") and (tmp_path / "elsewhere.html").is_file()
    (only,) = told["runs"]
    for key in ("macs_ratio", "params_ratio", "error_after", "val_error_before", "val_error_after"):
        assert only[key] == summary[key]
    assert only["channels"] == summary["channels"]


def test_several_runs_get_one_page(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fake").mkdir()
    write_run(tmp_path / "fake", sites=3, until="stage")
    assert run("report", str(whole), "fake") == 0
    shown = capsys.readouterr().out
    assert "2 runs" in shown and "unfinished" in shown and "page: runs.html" in shown
    assert "2 runs side by side" in (tmp_path / "runs.html").read_text()
    assert run("report", str(whole), "fake", "--out", "all.html", "--json") == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)["runs"]] == ["whole", "fake"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("report", "nowhere"), "nowhere is no run folder"),
        (("report", "nowhere", "neither"), "nowhere is no run folder"),
    ],
)
def test_a_mistake_is_one_message_and_a_code(words: tuple[str, ...], message: str, refused: Refused) -> None:
    refused(words, message)
