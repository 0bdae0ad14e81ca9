"""Run folders of earlier versions stay readable. ``old_run`` is a demo that the version of commit 71156d1 wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import rbprune
from rbprune.report.html import write_report
from rbprune.runs.folder import RunFolder
from rbprune.runs.pair import run_pair
from rbprune.runs.resume import resume

pytestmark = pytest.mark.filterwarnings("ignore:.*has no list of checksums")
OLD = Path(__file__).parent / "old_run"


def test_its_network_is_loaded_with_the_same_weights() -> None:
    model = rbprune.load(OLD, rbprune.models.build("lenet5"))
    assert (model.conv1.out_channels, model.conv2.out_channels, model.fc1.out_features) == (3, 14, 31)
    saved = load_file(OLD / "model.safetensors")
    assert all(torch.equal(tensor, saved[name]) for name, tensor in model.state_dict().items())
    assert rbprune.trace(model, torch.zeros(1, 1, 28, 28)).macs() == 117_654


def test_that_it_cannot_be_checked_is_said() -> None:
    with pytest.warns(UserWarning, match="old_run has no list of checksums: whether it is damaged cannot be told"):
        rbprune.load(OLD, rbprune.models.build("lenet5"))


def test_its_settings_and_summary_are_read() -> None:
    run = RunFolder(OLD)
    settings, summary = run.read_settings(), run.read_summary()
    assert (settings.prune.rates, settings.prune.rate_lr, settings.prune.price) == (
        "adam",
        0.02,
        rbprune.Price(nats_per_example=2.0),
    )
    assert summary is not None and summary["macs_ratio"] == pytest.approx(19.49, abs=0.01)
    assert resume(OLD) == summary, "a finished run only gives its summary"


def test_its_page_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(OLD, folder)
    run = RunFolder(folder)
    write_report(run.report_file, events=run.events_file, settings=run.settings_file)
    page = run.report_file.read_text()
    assert "19.49x" in page and "1.40 %" in page


def test_its_networks_can_be_timed_against_each_other() -> None:
    pair = run_pair(OLD)
    ratio = json.loads((OLD / "summary.json").read_text())["macs_ratio"]
    assert pair.macs_ratio == pytest.approx(ratio)
