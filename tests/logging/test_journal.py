"""What a run tells: the fields of its events are those of docs/runs.md, its lines are those that people read."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console

from rbprune import trace
from rbprune.graph import ChannelGraph
from rbprune.logging.events import read_events
from rbprune.logging.journal import EpochRecord, Journal, StageRecord, versions
from rbprune.methods import Price, StageResult
from rbprune.settings.recipe import build_settings, load_recipe
from tests.networks import tiny_cnn

RATES = torch.tensor([0.123456789, 0.9, 0.9, 0.01, 0.02, 0.03])


def documented() -> dict[str, set[str]]:
    """For each event the fields that docs/runs.md names for it."""
    page = (Path(__file__).parents[2] / "docs" / "runs.md").read_text()
    table = re.findall(r"^\| `(\w+)` \| (.*) \|$", page.split("## events.jsonl")[1].split("\n## ")[0], re.MULTILINE)
    fields = {event: re.sub(r"\([^)]*\)", "", text).split(";")[0] for event, text in table}
    return {event: set(re.findall(r"`(\w+)`", text)) for event, text in fields.items()}


def epoch(**changes: object) -> EpochRecord:
    values = {
        "phase": "finetune",
        "stage": None,
        "epoch": 2,
        "epochs": 3,
        "loss": 0.12345,
        "kl": 0.0,
        "lr": 0.1,
        "seconds": 12.4,
        "images_per_second": 100.0,
        "undecided": None,
        "metric": "error",
        "val_error": 8.125,
        "dense_epochs": 1.5,
    }
    return EpochRecord(**{**values, **changes})  # type: ignore[arg-type]


def end_stage(journal: Journal, graph: ChannelGraph) -> None:
    """Two of six channels of the first layer go."""
    dense = {"macs": float(graph.macs()), "params": float(graph.params())}
    graph.remove({"0": [1, 2]})
    result = StageResult("rate", {"0": RATES}, {"0": (6, 4)}, {"0": 0.5}, {"0": (20.0, 20.0)}, [], {})
    journal.stage(StageRecord(1, 0, 3, 2.0, True, 33.1, "error", 8.125), result, graph, dense)


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


@pytest.fixture
def graph() -> ChannelGraph:
    return trace(tiny_cnn(), torch.zeros(1, 1, 8, 8))


def printed(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_every_event_has_the_fields_that_are_documented(console: Console, graph: ChannelGraph, tmp_path: Path) -> None:
    journal = Journal(console, events=tmp_path / "events.jsonl")
    settings = load_recipe("demo")
    journal.start(settings, ["rbprune", "demo"], graph, 64)
    journal.precision(
        arithmetic="float32, contiguous",
        precision="32-true",
        channels_last=False,
        why="as set",
        step_seconds={},
        warnings=("slow",),
    )
    journal.resumed("ckpt-000003")
    journal.dense(6.5, 0.21, 2.05, Price(nats_per_example=1.78), val_error=6.7)
    journal.epoch(epoch())
    end_stage(journal, graph)
    journal.warn("mind the gap")
    journal.done({"macs_ratio": 2.0}, graph)
    assert {e["event"]: set(e) - {"time", "event"} for e in journal.events} == documented()
    assert read_events(tmp_path / "events.jsonl") == journal.events, "in memory as in the file"


def test_a_run_can_be_built_again_from_its_first_event(console: Console, graph: ChannelGraph) -> None:
    journal = Journal(console)
    settings = load_recipe("demo", ["seed=3", "data.path=/some where"])
    journal.start(settings, [], graph, 64)
    (event,) = journal.events
    assert build_settings(event["config"], applied=True) == settings
    assert (event["seed"], event["method"], event["dataset_size"]) == (3, "rbp", 64)
    assert event["sites"] == {"0": 6, "4": 12, "8": 12}
    journal.start(settings, [], graph, 64, [["0"], ["4", "8"]])
    assert journal.events[-1]["stages"] == [["0"], ["4", "8"]]
    journal.start(load_recipe("demo", ["task=train"]), [], graph, 64, [["0"]])
    assert journal.events[-1]["stages"] == [], "a run that only trains judges nothing"
    assert [layer["name"] for layer in event["layers"]] == ["0", "4", "8", "10"]
    assert sum(layer["macs"] for layer in event["layers"]) == event["macs"] == graph.macs()
    assert sum(layer["params"] for layer in event["layers"]) == event["params"] == graph.params()


def test_a_stage_is_an_event_and_a_line(console: Console, graph: ChannelGraph) -> None:
    journal = Journal(console)
    macs, params = graph.macs(), graph.params()
    end_stage(journal, graph)
    (event,) = journal.events
    assert event["values"] == {"0": [0.12346, 0.9, 0.9, 0.01, 0.02, 0.03]}, "five decimals are enough"
    assert (event["channels"], event["price"]) == ({"0": [6, 4]}, {"0": [20.0, 20.0]})
    assert (event["macs"], event["params"]) == (graph.macs(), graph.params())
    assert event["macs_ratio"] == macs / graph.macs() and event["params_ratio"] == params / graph.params()
    ratios = f"MACs {macs / graph.macs():.2f}x  parameters {params / graph.params():.2f}x"
    assert printed(console) == f"stage 1/3  0  6 -> 4  {ratios}  val error 8.12 %  (33 s)\n"


def test_epochs_are_lines_but_for_those_of_stages(console: Console) -> None:
    journal = Journal(console)
    journal.epoch(epoch(phase="prune", stage=0))
    assert printed(console) == "", "the stage tells its end"
    journal.epoch(epoch())
    journal.epoch(epoch(val_error=None))
    journal.epoch(epoch(metric="loss", val_error=0.5, phase="pretrain"))
    assert printed(console).splitlines() == [
        "finetune 2/3  loss 0.1235  val error 8.12 %  (12 s)",
        "finetune 2/3  loss 0.1235  (12 s)",
        "pretrain 2/3  loss 0.1235  val loss 0.5000  (12 s)",
    ]
    assert [event["event"] for event in journal.events] == ["epoch"] * 4


def test_warnings_and_resumes_are_said(console: Console) -> None:
    journal = Journal(console)
    journal.warn("[bold]no markup[/]")
    journal.resumed("ckpt-000003")
    assert printed(console) == "warning: [bold]no markup[/]\nresuming from ckpt-000003\n"


def test_a_silent_journal_only_remembers(console: Console) -> None:
    journal = Journal(console, silent=True)
    journal.warn("one")
    journal.epoch(epoch())
    journal.say("two")
    assert printed(console) == ""
    assert [event["event"] for event in journal.events] == ["warning", "epoch"]


def test_curves_and_histograms_are_written_where_they_are_asked_for(
    console: Console, graph: ChannelGraph, tmp_path: Path
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    journal = Journal(console, tensorboard=tmp_path)
    journal.epoch(epoch(val_error=None))
    journal.epoch(epoch(loss=0.5))
    end_stage(journal, graph)
    journal.board.close()
    found = accumulator.EventAccumulator(str(tmp_path))
    found.Reload()
    assert [(e.step, round(e.value, 5)) for e in found.Scalars("finetune/loss")] == [(1, 0.12345), (2, 0.5)]
    assert [e.value for e in found.Scalars("finetune/val_error")] == [8.125]
    assert [e.step for e in found.Histograms("rate/0")] == [1]


def test_versions_are_those_of_what_computed_the_numbers() -> None:
    found = versions()
    assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {"rbprune", "torch", "lightning-fabric", "numpy", "safetensors", "python", "machine"} == set(found)
