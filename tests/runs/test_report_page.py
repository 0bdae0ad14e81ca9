"""Pages of runs that are there already: the checksums of a finished run follow its page."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from rbprune.errors import CheckpointError, ConfigError, DamagedError
from rbprune.runs.folder import RunFolder
from rbprune.runs.report_page import read_beside, rewrite_report, write_page_of_runs
from tests.report.fake import write_run


def finished_run(folder: Path) -> RunFolder:
    """A finished run with its sums."""
    folder.mkdir()
    (folder / "config.toml").write_text("seed = 0")
    run = RunFolder(folder)
    run.finish(write_run(folder, sites=3))
    return run


def test_a_page_that_is_written_anew_is_still_one_of_the_run(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    before = run.report_file.read_bytes()
    run.report_file.write_text("another page")
    assert run.check_files() != []
    assert rewrite_report(run) == run.report_file
    assert run.report_file.read_bytes() == before and run.check_files() == []
    assert run.read_summary() is not None, "the other sums are as they were"


def test_damage_is_not_sealed_by_a_new_page(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    content = run.events_file.read_text()
    run.events_file.write_text(content.replace("6.95", "1.95"))
    sums, page = run.sums_file.read_bytes(), run.report_file.read_bytes()
    with pytest.raises(DamagedError, match=r"events\.jsonl cannot be read"):
        rewrite_report(run)
    assert (run.sums_file.read_bytes(), run.report_file.read_bytes()) == (sums, page)


def test_an_unfinished_run_gets_a_page_and_no_sums(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("seed = 0")
    write_run(tmp_path, sites=3, until="stage")
    run = RunFolder(tmp_path)
    assert 'http-equiv="refresh" content="9"' in rewrite_report(run, refresh=9).read_text()
    assert not run.sums_file.exists()


def test_a_run_without_sums_stays_without(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    run.sums_file.unlink()
    rewrite_report(run)
    assert not run.sums_file.exists()


def test_links_lead_from_the_page_to_the_pages_of_the_runs(tmp_path: Path) -> None:
    for name in ("a", "b c"):
        finished_run(tmp_path / name)
    (tmp_path / "pages").mkdir()
    page = tmp_path / "pages" / "all.html"
    runs = read_beside([tmp_path / "a", tmp_path / "b c", tmp_path / "a"], page)
    assert [(run.name, run.link) for run in runs] == [("a", "../a/report.html"), ("b c", "../b%20c/report.html")]
    (tmp_path / "a" / "report.html").unlink()
    assert read_beside([tmp_path / "a"], page)[0].link is None
    assert write_page_of_runs(page, runs, "").is_file() and write_page_of_runs(page, runs, "").is_file(), "again"


def test_what_is_no_run_and_what_is_no_page_is_refused(tmp_path: Path) -> None:
    finished_run(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"is no run folder \(it has no events.jsonl\); there are runs .*: run"):
        read_beside([tmp_path], tmp_path / "x.html")
    with pytest.raises(CheckpointError, match="give the --out of"):
        rewrite_report(RunFolder(tmp_path / "nowhere"))
    runs = read_beside([tmp_path / "run"], tmp_path / "x.html")
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    with pytest.raises(ConfigError, match=r"mine\.html is there already and is no page of runs"):
        write_page_of_runs(tmp_path / "mine.html", runs, "")
    assert (tmp_path / "mine.html").read_text() == "<p>mine</p>"
    with pytest.raises(ConfigError, match="is a folder"):
        write_page_of_runs(tmp_path, runs, "")


def test_a_damaged_log_of_several_is_told(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    os.unlink(run.sums_file)
    with run.events_file.open("a") as file:
        file.write("nonsense\n")
    with pytest.warns(UserWarning, match="1 lines are left out"):
        read_beside([run.path], tmp_path / "x.html")
    shutil.rmtree(run.path)
