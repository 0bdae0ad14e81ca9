"""The fields of summary.json."""

from __future__ import annotations

import platform

import pytest
import torch

from rbprune import Pruner
from rbprune.errors import NumericalError
from rbprune.train.evaluate import Score
from rbprune.train.state import RunState
from rbprune.train.summary import summarise
from tests.networks import tiny_cnn
from tests.train.small import small_settings


@pytest.fixture
def cut() -> tuple[Pruner, dict[str, float]]:
    """Two sites may be cut, and one of them was; with the costs of the dense network."""
    pruner = Pruner(tiny_cnn(), torch.zeros(1, 1, 8, 8), dataset_size=64, settings=small_settings().prune)
    dense = {"macs": float(pruner.graph.macs()), "params": float(pruner.graph.params())}
    pruner.graph.remove({"4": range(6)})
    return pruner, dense


def test_what_was_reached_is_counted_on_the_network_itself(cut: tuple[Pruner, dict[str, float]]) -> None:
    pruner, dense = cut
    state = RunState(error_before=5.0, val_error=6.0, seconds=3.0, undecided={"0": 0.5}, guarded=["4"])
    state.cost["prune"] = 1.5
    found = summarise(small_settings(), state, pruner, dataset_size=64, dense=dense, score=Score(7.0, "error"))
    assert (found["macs_before"], found["params_before"]) == (54 * 64 + 648 * 16 + 192 * 12 + 36, 54 + 648 + 2304 + 36)
    assert (found["macs_after"], found["params_after"]) == (54 * 64 + 324 * 16 + 96 * 12 + 36, 54 + 324 + 1152 + 36)
    assert found["macs_ratio"] == found["macs_before"] / found["macs_after"]
    assert found["params_ratio"] == found["params_before"] / found["params_after"]
    assert found["channels"] == {"0": [6, 6], "4": [12, 6]}, "what was never to be cut is left out"
    assert (found["error_before"], found["error_after"], found["val_error_after"]) == (5.0, 7.0, 6.0)
    assert (found["undecided"], found["guarded"], found["seconds"]) == ({"0": 0.5}, ["4"], 3.0)
    assert found["dense_epochs"] == {"pretrain": 0.0, "prune": 1.5, "finetune": 0.0}
    assert (found["model"], found["method"], found["seed"], found["metric"]) == ("tiny", "rbp", 0, "error")
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert "top5_after" not in found


def test_a_top5_error_is_there_where_it_was_measured(cut: tuple[Pruner, dict[str, float]]) -> None:
    pruner, dense = cut
    score = Score(7.0, "error", 2.0)
    found = summarise(small_settings(), RunState(top5_before=1.0), pruner, dataset_size=64, dense=dense, score=score)
    assert (found["top5_before"], found["top5_after"]) == (1.0, 2.0)


def test_without_data_to_evaluate_on_there_is_no_error(cut: tuple[Pruner, dict[str, float]]) -> None:
    pruner, dense = cut
    found = summarise(small_settings(), RunState(), pruner, dataset_size=64, dense=dense, score=None)
    assert (found["error_before"], found["error_after"]) == (None, None)


def test_the_log_of_costs_is_a_copy(cut: tuple[Pruner, dict[str, float]]) -> None:
    pruner, dense = cut
    state = RunState()
    found = summarise(small_settings(), state, pruner, dataset_size=64, dense=dense, score=None)
    state.cost["prune"] = 9.0
    assert found["dense_epochs"]["prune"] == 0.0


def test_a_network_that_had_been_cut_before_is_also_compared_with_the_original(
    cut: tuple[Pruner, dict[str, float]],
) -> None:
    pruner, dense = cut
    first = summarise(small_settings(), RunState(), pruner, dataset_size=64, dense=dense, score=None)
    assert "macs_ratio_total" not in first and "params_ratio_total" not in first
    again = Pruner(pruner.model, torch.zeros(1, 1, 8, 8), dataset_size=64, settings=small_settings().prune)
    middle = {"macs": float(again.graph.macs()), "params": float(again.graph.params())}
    again.graph.remove({"0": range(3)})
    found = summarise(small_settings(), RunState(), again, dataset_size=64, dense=middle, score=None)
    for name in ("macs", "params"):
        assert found[f"{name}_ratio"] == middle[name] / found[f"{name}_after"]
        assert found[f"{name}_ratio_total"] == dense[name] / found[f"{name}_after"]


def test_a_network_of_no_numbers_has_no_summary(cut: tuple[Pruner, dict[str, float]]) -> None:
    pruner, dense = cut
    with torch.no_grad():
        next(pruner.model.parameters()).view(-1)[0] = float("nan")
    with pytest.raises(NumericalError, match=r"the run ends with a network that is none: '0.weight' holds NaN"):
        summarise(small_settings(), RunState(), pruner, dataset_size=64, dense=dense, score=None)
