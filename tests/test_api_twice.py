"""``rbprune.prune`` called again on the same network: further down, and the plan still leads from the original."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rbprune
from tests.networks import stripes, tiny_cnn
from tests.test_api import loader, quiet, trained

SHORT = {"prune": {"epochs": 3}, "finetune": {"epochs": 1}}


def prune_again(model: nn.Module, **given: Any) -> rbprune.Result:
    settings: dict[str, Any] = {"macs_ratio": 2, "options": SHORT, "console": quiet(), **given}
    return rbprune.prune(model, loader(512), example_inputs=stripes(2)[0], **settings)


def same_outputs(a: nn.Module, b: nn.Module) -> bool:
    images, _ = stripes(64, 9)
    return torch.equal(a.eval()(images), b.eval()(images))


@pytest.mark.parametrize("method", ["rbp", "uniform"])
def test_half_of_the_half_is_a_quarter_and_the_plan_leads_from_the_original(method: str, tmp_path: Path) -> None:
    model, console = trained(), quiet()
    first = prune_again(model, method=method)
    assert "macs_ratio_total" not in first.summary
    second = prune_again(model, method=method, console=console)
    assert second.summary["macs_before"] == first.summary["macs_after"], "it goes on from where it was"
    assert 2 <= second.summary["macs_ratio"] < 2.5
    for name in ("macs", "params"):
        total = first.summary[f"{name}_ratio"] * second.summary[f"{name}_ratio"]
        assert second.summary[f"{name}_ratio_total"] == pytest.approx(total)
    assert 4 <= second.summary["macs_ratio_total"] < 6.3
    assert "fewer MACs" in console.file.getvalue().splitlines()[-1]  # type: ignore[attr-defined]
    by_plan = rbprune.apply_plan(tiny_cnn(), second.plan)
    by_plan.load_state_dict(model.state_dict())
    assert same_outputs(by_plan, model)
    assert same_outputs(rbprune.load(second.save(tmp_path / "run"), tiny_cnn()), model)


def test_a_network_that_was_loaded_goes_on_too(tmp_path: Path) -> None:
    first = prune_again(trained())
    model = rbprune.load(first.save(tmp_path / "first"), tiny_cnn())
    second = prune_again(model, macs_ratio=1.5)
    assert second.summary["macs_ratio_total"] == pytest.approx(
        first.summary["macs_ratio"] * second.summary["macs_ratio"]
    )
    assert same_outputs(rbprune.load(second.save(tmp_path / "second"), tiny_cnn()), model)


def test_with_nothing_said_it_goes_on_as_well() -> None:
    """At the price of the first call most channels that are left earn it; whatever goes, the plan knows."""
    model = trained()
    options = {"finetune": {"epochs": 1}}
    results = [prune_again(model, macs_ratio=None, options=options, val_loader=loader(200, 1)) for _ in range(2)]
    assert results[0].summary["macs_ratio"] > 2
    assert results[1].summary["macs_ratio_total"] >= results[0].summary["macs_ratio"]
    assert results[1].summary["error_after"] < 5
    by_plan = rbprune.apply_plan(tiny_cnn(), results[1].plan)
    by_plan.load_state_dict(model.state_dict())
    assert same_outputs(by_plan, model)
