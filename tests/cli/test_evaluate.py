"""``rbprune evaluate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Refused, run
from tests.runs.test_pair import run_folder

pytestmark = pytest.mark.filterwarnings("ignore:.*has no list of checksums")


def test_an_exported_folder_is_as_it_says_until_its_figures_are_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = tmp_path / "hub"
    words = ("export", str(run_folder(tmp_path / "run", "lenet5")), "--format", "safetensors", "--out", str(hub))
    assert run(*words, "--license", "apache-2.0") == 0
    capsys.readouterr()
    assert run("evaluate", str(hub), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    config = json.loads((hub / "config.json").read_text())
    config["summary"] = {"error_after": told["error"], "macs_after": told["macs"] + 5}
    (hub / "config.json").write_text(json.dumps(config))
    assert run("evaluate", str(hub)) == 3
    text = capsys.readouterr().out
    assert f"error {told['error']:.2f} % on {told['examples']:,} test images" in text
    assert f"the folder says {told['macs'] + 5:,} macs, and there are {told['macs']:,}" in text
    assert 'license: "apache-2.0"' in (hub / "README.md").read_text("utf-8")
    assert 'rbprune.load(".", rbprune.models.build("lenet5"))' in (hub / "README.md").read_text("utf-8")


def test_evaluate_explains_its_mistakes(tmp_path: Path, refused: Refused) -> None:
    refused(("evaluate", str(tmp_path)), "is neither a run")
