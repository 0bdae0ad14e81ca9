"""``rbprune.frontier``: copies of a model, ever smaller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import rbprune
from rbprune.errors import ConfigError, OutOfReachError
from rbprune.runs.pick import pick
from tests.networks import stripes, tiny_cnn
from tests.test_api import loader, quiet, trained

SHORT = {"prune": {"epochs": 1}, "finetune": {"epochs": 1}}


def draw(**given: Any) -> Any:
    settings: dict[str, Any] = {"to": 4, "steps": 2, "options": SHORT, "val_loader": loader(200, 1), **given}
    model = settings.pop("model", None) or trained()
    return rbprune.frontier(model, loader(512), example_inputs=stripes(2)[0], console=quiet(), **settings)


@pytest.mark.parametrize(("method", "cost"), [("uniform", "macs"), ("rbp", "params")])
def test_each_network_comes_of_the_one_before_and_the_model_stays(method: str, cost: str, tmp_path: Path) -> None:
    model = trained()
    saved = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = draw(model=model, method=method, cost=cost, out=tmp_path / "f")
    assert all(torch.equal(saved[name], tensor) for name, tensor in model.state_dict().items())
    first, second = found.results
    assert second.summary["macs_before"] == first.summary["macs_after"]
    ratios = [point.ratios[cost] for point in found.points]
    assert ratios[0] == 1 and 2 <= ratios[1] < 2.6 and 4 <= ratios[2] < 5.5
    assert [point["path"] for point in json.loads((tmp_path / "f/frontier.json").read_text())["points"]] == [
        *("", "step-01-2x", "step-02-4x")
    ]
    images, _ = stripes(64, 9)
    smallest = pick(tmp_path / "f", 100.0)
    again = rbprune.load(smallest.folder, tiny_cnn())
    assert torch.equal(again.eval()(images), second.model.eval()(images))
    assert smallest.doubt is not None and smallest.doubt.paired


def test_it_ends_where_nothing_more_can_be_reached() -> None:
    found = draw(method="uniform", to=200, steps=8, options=["finetune.epochs=0", "prune.least=0.6"])
    assert found.stopped is not None and "out of reach" in found.stopped
    assert 1 < len(found.points) == len(found.results) + 1 < 9
    with pytest.raises(OutOfReachError, match="out of reach"):
        draw(method="uniform", to=300, steps=1)


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a frontier decides how far each step goes: leave out macs_ratio = 2"):
        draw(macs_ratio=2)
    with pytest.raises(ConfigError, match="leave out max_error_rise = 1"):
        draw(max_error_rise=1)
    with pytest.raises(ConfigError, match="unknown cost 'flops'"):
        draw(cost="flops")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty; choose another folder"):
        draw(out=tmp_path)
