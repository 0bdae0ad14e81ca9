"""From a dense network to ever smaller ones: what each step starts from, what is written, and what a kill costs."""

from __future__ import annotations

import json
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import rbprune
from rbprune.errors import ConfigError, OutOfReachError
from rbprune.runs.folder import RunFolder
from rbprune.runs.frontier import Frontier, FrontierRequest, frontier, geometric_ratios, read_frontier
from tests.runs.quick import SMALL, comparable, digest, overrides, quiet, run_and_kill, summary_of

STEPS = (
    *SMALL,
    "pretrain.epochs=4",
    "prune.method=uniform",
    "finetune.epochs=2",
    "runtime.checkpoint_seconds=0.05",
    "runtime.precision=32-true",
    "runtime.channels_last=false",
)
"""A recipe whose runs take a second each."""
RATIOS = geometric_ratios(4, steps=3)


def draw(folder: Path, more: tuple[str, ...] = (), **given: Any) -> Frontier:
    request = FrontierRequest("demo", **{"ratios": RATIOS, "overrides": (*STEPS, *more), **given})
    return frontier(request, folder, console=quiet(), command=["rbprune", "frontier"])


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A frontier that was never interrupted; nobody may change it."""
    folder = tmp_path_factory.mktemp("frontier") / "whole"
    draw(folder)
    return folder


def test_each_step_goes_on_from_the_network_of_the_one_before(drawn: Path) -> None:
    names = ["step-01-1.59x", "step-02-2.52x", "step-03-4x"]
    found = json.loads((drawn / "frontier.json").read_text())
    assert [point["path"] for point in found["points"]] == ["dense", *names]
    summaries = [summary_of(drawn / name) for name in names]
    for before, after in pairwise(summaries):
        assert after["macs_before"] == before["macs_after"]
        assert (after["error_before"], after["val_error_before"]) == (before["error_after"], before["val_error_after"])
    dense, *points = found["points"]
    assert dense["costs"]["macs"] == summaries[0]["macs_before"] and dense["ratios"]["macs"] == 1
    for wanted, point, summary in zip(RATIOS, points, summaries, strict=True):
        assert wanted <= point["ratios"]["macs"] < 1.15 * wanted
        assert point["val_error"] == summary["val_error_after"] and point["error"] == summary["error_after"]
        assert point["standard_error"] > 0
        model = rbprune.load(drawn / point["path"], rbprune.models.build("lenet5"))
        assert rbprune.trace(model, torch.zeros(1, 1, 28, 28)).macs() == point["costs"]["macs"]


def test_the_cost_is_in_epochs_of_the_dense_network(drawn: Path) -> None:
    """A run counts epochs of the network that it began with: two epochs of a half are one of the whole."""
    points = read_frontier(drawn).points
    spent, trained = 0.0, 0.0
    for before, point in pairwise(points):
        own = summary_of(drawn / point.path)["dense_epochs"]
        spent += sum(own.values()) * before.costs["macs"] / points[0].costs["macs"]
        trained += own["finetune"] * before.costs["macs"] / points[0].costs["macs"]
        assert point.dense_epochs == pytest.approx(spent)
    wanted = 2 * sum(point.costs["macs"] for point in points[1:]) / points[0].costs["macs"]
    assert trained == pytest.approx(wanted), "each network was fine-tuned for two epochs"


def test_the_page_draws_both_errors(drawn: Path) -> None:
    page = (drawn / "frontier.html").read_text()
    assert "error against MACs" in page and "step-03-4x" in page
    assert "validation" in page and "test" in page and "<script" not in page


def test_nothing_is_repeated_and_another_frontier_in_the_same_folder_is_refused(drawn: Path) -> None:
    times = {path: path.stat().st_mtime_ns for path in drawn.rglob("summary.json")}
    assert len(times) == 4
    draw(drawn)
    assert times == {path: path.stat().st_mtime_ns for path in drawn.rglob("summary.json")}
    with pytest.raises(ConfigError, match=r"holds a frontier with another cost \('macs', now 'params'\); choose"):
        draw(drawn, cost="params")


@pytest.mark.parametrize(("step", "moment"), [("dense", '"epoch"'), ("step-01", '"stage"'), ("step-02", '"epoch"')])
def test_killed_it_goes_on_and_ends_as_if_nothing_had_happened(
    step: str, moment: str, drawn: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ["frontier", "demo", "--to", "4", "--steps", "3", "--out", str(out), *overrides(STEPS)]
    ended = run_and_kill(out, step, moment, words)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not (out / "step-03-4x").exists()
    request = json.loads((out / "request.json").read_text())
    assert request["overrides"] == list(STEPS)
    draw(out)
    for name in ("dense", "step-01-1.59x", "step-02-2.52x", "step-03-4x"):
        assert digest(out / name) == digest(drawn / name)
    assert comparable(out / "step-03-4x") == comparable(drawn / "step-03-4x")
    assert (out / "frontier.json").read_text() == (drawn / "frontier.json").read_text()


def test_what_a_kill_left_half_written_is_no_obstacle(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for folder in (out, out / "step-01-1.5x"):
        folder.mkdir()
        (folder / ".config.toml.123.tmp").write_text("half")
    request = {"ratios": (1.5,), "overrides": (*STEPS, "pretrain.epochs=0", "finetune.epochs=0")}
    with pytest.raises(ConfigError, match="exists and holds no frontier"):
        draw(out, **request)  # a folder of somebody else's
    (out / "step-01-1.5x" / ".config.toml.123.tmp").rename(out / ".other.tmp")
    (out / "step-01-1.5x").rmdir()
    assert len(draw(out, **request).points) == 2


def test_it_ends_where_nothing_more_can_be_reached_and_says_so(tmp_path: Path) -> None:
    more = ("prune.least=0.5", "pretrain.epochs=0", "finetune.epochs=0", "prune.only=['conv1']")
    found = draw(tmp_path / "out", more, ratios=(1.2, 1.9, 30.0))
    assert found.stopped is not None and found.stopped.startswith(("1.9x: a network of", "30x: a network of"))
    assert len(found.points) < 4
    assert json.loads((tmp_path / "out" / "frontier.json").read_text())["stopped"] == found.stopped
    assert "Where it ends" in (tmp_path / "out" / "frontier.html").read_text()
    with pytest.raises(OutOfReachError, match="is out of reach"):
        draw(tmp_path / "other", more, ratios=(30.0,))


def test_any_cost_can_fall_and_a_method_that_finds_its_price_follows_too(tmp_path: Path) -> None:
    more = ("prune.method=ibp", "prune.epochs=1", "prune.confidence=0")
    found = draw(tmp_path / "out", more, ratios=(1.5, 2.25), cost="params")
    assert [p.ratios["params"] for p in found.points] == pytest.approx([1.0, 1.5, 2.25], rel=0.05)
    assert RunFolder(tmp_path / "out" / "step-02-2.25x").read_settings().prune.params_ratio == pytest.approx(
        2.25 / found.points[1].ratios["params"]
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"to": 1}, "--to is how many times smaller .*; 1 is not"),
        ({"to": 4, "factor": 0.5}, r"--factor is .* above 1; not 0\.5"),
        ({"to": 4, "steps": 0}, "--steps is how many networks there shall be; 0 is none"),
        ({"to": 4, "steps": 2, "factor": 1.5}, "--steps 2 and --factor 1.5 both say"),
    ],
)
def test_ratios_that_make_no_sense_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        geometric_ratios(**given)


def test_requests_that_cannot_work_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the settings ask for prune\.macs_ratio = 2: leave it out"):
        draw(tmp_path / "out", ("prune.macs_ratio=2",))
    with pytest.raises(ConfigError, match="unknown cost 'flops'; known are macs, params"):
        draw(tmp_path / "out", cost="flops")
    with pytest.raises(ConfigError, match="a frontier prunes, and the settings say task = 'train'"):
        draw(tmp_path / "out", ("task=train",))
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="holds no frontier .it has no frontier.json."):
        read_frontier(tmp_path)
