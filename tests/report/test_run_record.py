from __future__ import annotations

from typing import Any

import pytest

from rbprune.report.run_charts import run_charts
from rbprune.report.run_record import gather_run


def epoch(number: int, **more: Any) -> dict[str, Any]:
    return {"event": "epoch", "phase": "prune", "stage": 0, "epoch": number, **more}


def test_what_a_resumed_run_repeats_counts_once() -> None:
    events = [{"event": "start"}, epoch(1, loss=1.0), epoch(2, loss=0.9), {"event": "resume"}, epoch(2, loss=0.8)]
    run = gather_run(events)
    assert [event["loss"] for event in run.epochs] == [1.0, 0.8]
    assert run.resumes == 1 and not run.finished


def test_the_dense_error_is_known_before_the_run_is_done() -> None:
    dense = {"event": "dense", "error_before": 5.55, "val_error_before": 6.66}
    run = gather_run([{"event": "start"}, dense, epoch(1, val_error=7.0)])
    assert run.start["error_before"] == 5.55 and run.val_error_before == 6.66
    (chart, *_) = run_charts(run)
    assert "dense network 6.66 %" in chart.drawing, "the curve is of validation errors"


STAGE = {"event": "stage", "stage": 0, "channels": {"a": [16, 9]}}
SITES = {"a": 16, "b": 32, "sum": 8}


@pytest.mark.parametrize(
    ("start", "ending", "open_sites", "channels"),
    [
        ({"stages": [["a"], ["b"]]}, [], ["a", "b"], (48, 41)),
        ({}, [], ["a", "b", "sum"], (56, 49)),  # an older version does not tell
        ({}, [{"event": "done", "summary": {"channels": {"a": [16, 9], "b": [32, 30]}}}], ["a", "b"], (48, 39)),
    ],
)
def test_what_the_method_leaves_alone_is_no_part_of_the_totals(
    start: dict[str, Any], ending: list[dict[str, Any]], open_sites: list[str], channels: tuple[int, int]
) -> None:
    run = gather_run([{"event": "start", "sites": SITES, **start}, STAGE, *ending])
    assert [site.name for site in run.sites if site.is_open] == open_sites
    assert run.channels == channels


def test_whole_branches_are_not_counted_as_channels() -> None:
    stages = [
        {"event": "stage", "stage": 0, "channels": {"layer1": [1, 0], "layer2": [1, 1]}},
        {"event": "stage", "stage": 1, "channels": {"b": [32, 4]}},
    ]
    events: list[dict[str, Any]] = [{"event": "start", "sites": SITES, "stages": [["layer1", "layer2"], ["a", "b"]]}]
    for ending in ([], [{"event": "done", "summary": {"channels": {"a": [16, 0], "b": [32, 4]}}}]):
        run = gather_run([*events, *stages, *ending])
        assert [site.name for site in run.sites if site.is_branch] == ["layer1", "layer2"]
        assert run.channels == (48, 4 if ending else 20)


def test_which_channels_went_is_what_the_records_say() -> None:
    stage = {**STAGE, "values": {"a": [0.1, 0.9]}, "records": {"a": {"verdict": ["goes", "taken back"]}}}
    (site,) = gather_run([stage]).sites
    assert site.goes == [True, False], "not the channel of the highest value"


def test_a_new_start_begins_a_new_run() -> None:
    run = gather_run(
        [{"event": "start", "seed": 0}, epoch(1), {"event": "done"}, {"event": "start", "seed": 1}, epoch(1)]
    )
    assert run.start["seed"] == 1 and len(run.epochs) == 1 and not run.finished


def test_a_site_pruned_twice_goes_from_its_first_to_its_last_width() -> None:
    stages = [
        {"event": "stage", "stage": 0, "channels": {"a": [16, 9]}, "values": {"a": [0.1] * 16}},
        {"event": "stage", "stage": 1, "channels": {"a": [9, 7]}, "values": {"a": [0.2] * 9}},
    ]
    (site,) = gather_run(stages).sites
    assert (site.before, site.after, site.removed, len(site.values)) == (16, 7, 2, 9)


def test_sizes_come_from_the_last_stage_until_the_run_is_done() -> None:
    events: list[dict[str, Any]] = [{"event": "start", "macs": 100, "params": 50}, {"event": "stage", "macs": 40}]
    run = gather_run(events)
    assert (run.costs["macs"].before, run.costs["macs"].after, run.costs["macs"].ratio) == (100, 40, 2.5)
    assert run.costs["params"].ratio is None
    run = gather_run([*events, {"event": "done", "summary": {"macs_after": 20}}])
    assert run.costs["macs"].ratio == 5


def test_layers_that_vanished_cost_nothing() -> None:
    dense = [{"name": "a", "macs": 10, "params": 1}, {"name": "b", "macs": 20, "params": 2}]
    run = gather_run([{"event": "start", "layers": dense}, {"event": "done", "layers": dense[:1]}])
    assert [layer.macs for layer in run.layers] == [(10, 10), (20, 0)]
    assert gather_run([{"event": "start", "layers": dense}]).layers[0].macs == (10, None)
