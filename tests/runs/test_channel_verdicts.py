"""What a run recorded of its channels, read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rbprune.errors import ConfigError
from rbprune.runs.channel_verdicts import judged_channels
from rbprune.runs.folder import RunFolder
from rbprune.runs.start import start
from rbprune.settings.recipe import load_recipe
from tests.runs.quick import SMALL, quiet, summary_of


def test_every_channel_is_there_and_the_verdicts_are_what_the_plan_says(whole: Path) -> None:
    plan = json.loads((whole / "plan.json").read_text())["sites"]
    for site, (before, after) in summary_of(whole)["channels"].items():
        found = judged_channels(RunFolder(whole), site)
        kept = sorted(each.channel for each in found.channels if each.verdict != "goes")
        assert (len(found.channels), len(kept), kept) == (before, after, plan[site]["kept"])
        assert [each.earned for each in found.channels] == sorted(each.earned for each in found.channels)
        assert len(found.table().rows) == before


def test_evidence_price_and_saving_are_those_of_the_stage(whole: Path) -> None:
    """Against the event of the stage, and LeNet-5: its first layer has 24 x 24 places of 25 weights."""
    event = next(e for e in RunFolder(whole).read_events() if e["event"] == "stage" and "conv1" in e["channels"])
    low, high = event["price"]["conv1"]
    found = judged_channels(RunFolder(whole), "conv1")
    size = summary_of(whole)["dataset_size"]
    for each in found.channels:
        assert each.evidence is not None and each.price is not None and each.error is not None
        assert low * 0.999 <= each.price <= high * 1.001
        assert each.value == pytest.approx(event["values"]["conv1"][each.channel], abs=1e-5)
        assert each.nats_per_example == pytest.approx(each.evidence / size)
        assert each.saving["macs"] == pytest.approx(24 * 24 * 25 + 8 * 8 * 25 * 50)
        assert each.share["macs"] == pytest.approx(each.saving["macs"] / summary_of(whole)["macs_before"])


def test_a_method_without_evidence_tells_its_score(tmp_path: Path) -> None:
    settings = load_recipe(
        "demo", [*SMALL, "prune.method=uniform", "prune.macs_ratio=2", "pretrain.epochs=0", "finetune.epochs=0"]
    )
    start(settings, tmp_path / "run", console=quiet())
    found = judged_channels(RunFolder(tmp_path / "run"), "conv1")
    assert {each.verdict for each in found.channels} == {"goes", "stays"}
    assert all(each.evidence is None for each in found.channels)
    assert found.table().columns[:3] == ("channel", "verdict", "minus score")
    assert found.channels[0].verdict == "goes" and found.channels[-1].verdict == "stays"


def test_what_was_not_judged_or_not_recorded_is_refused_by_name(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has judged no site 'conv3'; did you mean 'conv2'\?; judged were conv1, "):
        judged_channels(RunFolder(whole), "conv3")
    old = RunFolder(tmp_path)
    events = [{k: v for k, v in e.items() if k != "records"} for e in RunFolder(whole).read_events()]
    old.write_events(events)
    with pytest.raises(ConfigError, match="did not record what it knew of the channels of 'conv1'.*make the run again"):
        judged_channels(old, "conv1")
    old.write_events(events[:2])
    with pytest.raises(ConfigError, match="no site 'conv1'; no stage of it is over yet"):
        judged_channels(old, "conv1")
