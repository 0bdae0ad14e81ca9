"""The smallest network within an error, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import rbprune
from rbprune.errors import ConfigError
from tests.networks import stripes, tiny_cnn
from tests.test_api import loader, quiet, trained

OPTIONS = {"finetune": {"epochs": 4}, "prune": {"epochs": 1}}


def shrink(model: nn.Module, **given: Any) -> rbprune.Result:
    settings: dict[str, Any] = {
        "max_error_rise": 1.0,
        "options": OPTIONS,
        "console": quiet(),
        "method": "uniform",
        "val_loader": loader(400, 1),
        **given,
    }
    return rbprune.prune(model, loader(512), example_inputs=stripes(2)[0], **settings)


def error(model: nn.Module) -> float:
    images, labels = stripes(400, 1)
    with torch.no_grad():
        return 100 * float((model.eval()(images).argmax(1) != labels).double().mean())


@pytest.mark.parametrize("method", ["uniform", "ibp"])
def test_the_model_becomes_the_smallest_network_within_the_error(method: str, tmp_path: Path) -> None:
    model = trained()
    conv, before = model[0], error(model)
    result = shrink(model, method=method)
    assert result.model is model and model[0] is conv, "in place"
    assert result.summary["macs_ratio"] > 2
    assert error(model) <= before + 1 and error(model) == pytest.approx(result.summary["val_error_after"])
    assert rbprune.trace(model, stripes(2)[0]).macs() == result.summary["macs_after"]
    run = result.save(tmp_path / "run")
    images, _ = stripes(64, 9)
    assert torch.equal(rbprune.load(run, tiny_cnn()).eval()(images), model.eval()(images))
    assert (run / "mistakes.json").is_file() and "1 points were allowed" in (run / "report.html").read_text()


def test_a_model_that_was_cut_before_goes_on_and_the_plan_leads_from_the_original(tmp_path: Path) -> None:
    model = trained()
    options = {"finetune": {"epochs": 1}, "prune": {"epochs": 1}}
    first = shrink(model, max_error_rise=None, macs_ratio=1.5, options=options)
    second = shrink(model)
    assert second.summary["macs_before"] == first.summary["macs_after"]
    total = first.summary["macs_ratio"] * second.summary["macs_ratio"]
    assert second.summary["macs_ratio_total"] == pytest.approx(total)
    images, _ = stripes(64, 9)
    assert torch.equal(rbprune.load(second.save(tmp_path / "run"), tiny_cnn()).eval()(images), model.eval()(images))


def test_where_nothing_may_go_the_model_is_left_as_it_was() -> None:
    """A recovery that spoils the network: whatever is tried is worse."""
    model = trained()
    saved = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    spoilt = {"finetune": {"epochs": 1, "lr": 30.0, "optimizer": "sgd"}}
    with pytest.warns(UserWarning, match="Nothing was removed: every step that was tried"):
        result = shrink(model, max_error_rise=0.0, options=spoilt, method="random")
    assert result.summary["macs_ratio"] == 1
    assert all(torch.equal(saved[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"val_loader": None, "test_loader": loader(64, 1)}, "there are no validation data: .* or give a val_loader"),
        ({"macs_ratio": 2}, "max_error_rise = 1 goes as far as the error allows, and macs_ratio = 2 says how far"),
        ({"options": {"budget": 3}}, "budget = 3 is what one run may take"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        shrink(trained(), **given)


def test_a_loss_has_no_points() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    data = [(torch.randn(32, 4), torch.randn(32, 1))] * 4
    with pytest.raises(ConfigError, match="prune.max_error_rise is in points of the classification error"):
        rbprune.prune(
            model, data, example_inputs=torch.zeros(2, 4), val_loader=data, loss_fn=F.mse_loss, max_error_rise=1.0,
            method="uniform", console=quiet(),
        )  # fmt: skip
