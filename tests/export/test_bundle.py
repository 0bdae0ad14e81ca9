"""Folders for the hub: what may be written into them, and what they tell."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from rbprune.errors import ConfigError
from rbprune.export.bundle import Bundle
from rbprune.export.signature import Signature
from rbprune.settings.sections import DataSettings
from tests.export.small import small_network

TOLD = {"format": "pt2", "int8": False, "batch": "dynamic", "bytes": 1000, "difference": 0.0, "checked_on": "stripes"}


def test_a_second_format_joins_the_first_and_names_are_kept(tmp_path: Path) -> None:
    network = small_network(learnt=False)
    Bundle(tmp_path, network).complete("model.pt2", TOLD, Signature(("x",), ("y",)))
    Bundle(tmp_path, network).complete("model.safetensors", {**TOLD, "format": "safetensors"}, None)
    config = json.loads((tmp_path / "config.json").read_text())
    assert list(config["files"]) == ["model.pt2", "model.safetensors"]
    assert (config["inputs"], config["outputs"]) == (["x"], ["y"])


def test_another_network_and_a_folder_of_others_are_refused(tmp_path: Path) -> None:
    network = small_network(learnt=False)
    Bundle(tmp_path, network).complete("model.pt2", TOLD, Signature(("x",), ("y",)))
    with torch.no_grad():
        next(network.model.parameters()).add_(1)
    with pytest.raises(ConfigError, match="holds the export of another network; choose another --out"):
        Bundle(tmp_path, network)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("mine")
    with pytest.raises(ConfigError, match="exists and is no exported folder"):
        Bundle(tmp_path / "docs", network)


def test_paths_of_the_machine_stay_there(tmp_path: Path) -> None:
    data = DataSettings(name="cifar10", path="/home/somebody/secret", val=100)
    summary = {"method": "rbp", "metric": "error", "error_after": 7.5, "versions": {"host": "secret"}}
    network = dataclasses.replace(small_network(learnt=False), data=data, summary=summary)
    Bundle(tmp_path, network).complete("model.pt2", TOLD, Signature(("x",), ("y",)))
    for name in ("config.json", "README.md"):
        assert "secret" not in (tmp_path / name).read_text()
    assert json.loads((tmp_path / "config.json").read_text())["data"] == {
        "name": "cifar10",
        "val": 100,
        "image_size": 224,
    }


def test_how_images_are_made_inputs_is_kept_where_it_is_not_as_usual(tmp_path: Path) -> None:
    """Whoever loads a model of timm must not feed it images of another scale."""
    data = DataSettings(name="folder", mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5], interpolation="bicubic", crop=0.95)
    network = dataclasses.replace(small_network(learnt=False), data=data)
    Bundle(tmp_path, network).complete("model.pt2", TOLD, Signature(("x",), ("y",)))
    kept = json.loads((tmp_path / "config.json").read_text())["data"]
    assert DataSettings(**kept) == data
