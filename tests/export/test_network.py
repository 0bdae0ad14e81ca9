"""Opening what is to be exported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from rbprune.errors import ConfigError, UntrustedCodeError
from rbprune.export.bundle import Bundle
from rbprune.export.network import open_network
from rbprune.export.signature import Signature
from tests.export.test_bundle import TOLD
from tests.runs.test_pair import run_folder

pytestmark = pytest.mark.filterwarnings("ignore:.*has no list of checksums")


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """An exported folder of LeNet-5."""
    network = open_network(run_folder(tmp_path / "run", "lenet5", "model.input_shape=[1,28,28]", "model.classes=10"))
    Bundle(tmp_path / "hub", network).complete("model.pt2", TOLD, Signature(("x",), ("output",)))
    return tmp_path / "hub"


def test_a_run_and_its_export_give_the_same_network(exported: Path) -> None:
    networks = [open_network(folder) for folder in (exported.parent / "run", exported)]
    x = torch.randn(2, 1, 28, 28)
    assert torch.equal(networks[0].model.eval()(x), networks[1].model.eval()(x))
    assert networks[0].plan.to_json() == networks[1].plan.to_json()
    assert [n.data.name for n in networks if n.data is not None] == ["mnist-subset"] * 2
    assert [n.input_shape for n in networks] == [(1, 28, 28)] * 2


def test_only_settings_of_the_data_can_be_changed(exported: Path) -> None:
    run = exported.parent / "run"
    network = open_network(run, None, ["data.name=mnist", "data.path=/there"])
    assert network.data is not None
    assert (network.data.name, network.data.path, network.data.val) == ("mnist", "/there", 600)
    with pytest.raises(ConfigError, match="only settings of the data, such as data.path=DIR; this sets prune"):
        open_network(run, None, ["prune.epochs=3"])
    with pytest.raises(ConfigError, match="pth: unknown key; did you mean 'path'"):
        open_network(run, None, ["data.pth=/there"])


def test_code_that_only_an_exported_folder_names_is_not_run(exported: Path) -> None:
    trap = exported.parent / "trap.py"
    trap.write_text("raise SystemExit('code was run')\n")
    config = json.loads((exported / "config.json").read_text())
    (exported / "config.json").write_text(json.dumps({**config, "data": {"name": f"{trap}:make"}}))
    with pytest.raises(UntrustedCodeError, match=r"data.name = .*trap.py:make.*name it yourself with --set data.name"):
        open_network(exported).load_data()
    assert open_network(exported, None, ["data.name=mnist-subset"]).load_data().classes == 10
    (exported / "config.json").write_text(json.dumps({**config, "model": f"{trap}:make"}))
    with pytest.raises(UntrustedCodeError, match=r"model = .*trap.py:make.*if you trust it, give it as MODEL, or add"):
        open_network(exported)
    with pytest.raises(SystemExit, match="code was run"):
        open_network(exported, trust=True)
    assert open_network(exported, "lenet5").name == "lenet5"


def test_other_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is neither a run .* nor an exported folder"):
        open_network(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"config\.json was not written by rbprune"):
        open_network(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json is no JSON"):
        open_network(tmp_path)
