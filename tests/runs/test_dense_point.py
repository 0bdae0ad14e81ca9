"""The network that a search starts from."""

from __future__ import annotations

import pytest
import torch

from rbprune.runs.build import make_runner
from rbprune.runs.dense_point import dense_point
from rbprune.runs.folder import RunFolder
from rbprune.runs.series import training_only
from rbprune.settings.recipe import load_recipe
from tests.runs.quick import SMALL, quiet


def test_it_is_evaluated_on_validation_and_test_data_before_anything_is_trained() -> None:
    runner = make_runner(training_only(load_recipe("demo", SMALL)), RunFolder("nowhere"), quiet(), [])
    point = dense_point(runner)
    assert runner.data.val is not None
    with torch.no_grad():
        wrong = torch.cat([runner.model.eval()(x).argmax(1) != y for x, y in runner.data.val.epoch(0)])
    assert point.val_error == pytest.approx(100 * float(wrong.double().mean()))
    assert point.mistakes is not None and list(point.mistakes.wrong) == wrong.nonzero().flatten().tolist()
    assert point.ratios == {"macs": 1.0, "params": 1.0} and point.costs["macs"] == runner.graph.macs()
    assert (point.metric, point.dense_epochs, point.error is None) == ("error", 0.0, False)
