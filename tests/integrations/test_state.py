from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rbprune.errors import CheckpointError, ConfigError
from rbprune.integrations.stages import HostedStages
from rbprune.integrations.state import restore_state, save_network, take_state
from tests.integrations.small import SIZE, data, first_batches, fresh, trained


def cut(model: nn.Module, **settings: Any) -> HostedStages:
    stages = HostedStages(model, data().tensors[0][:2], dataset_size=SIZE, loss_fn=F.cross_entropy, **settings)
    stages.measure(first_batches())
    return stages


def test_a_fresh_network_is_cut_alike_and_knows_what_was_measured() -> None:
    first = trained()
    stages = cut(first, method="uniform", macs_ratio=2)
    stages.begin()
    state = json.loads(json.dumps(take_state(stages)))  # plain values
    second = fresh()
    again = HostedStages(
        second, data().tensors[0][:2], dataset_size=SIZE, loss_fn=F.cross_entropy, method="uniform", macs_ratio=2
    )
    restore_state(again, state)
    second.load_state_dict(first.state_dict())
    assert again.is_done
    assert again.plan == stages.plan
    assert again.measured == stages.measured
    assert torch.equal(second.eval()(data().tensors[0]), first.eval()(data().tensors[0]))


def test_a_state_of_another_network_is_refused() -> None:
    stages = cut(trained())
    state = {**take_state(stages), "sites": {"9": {"channels": 3, "kept": [0]}}}
    with pytest.raises(
        CheckpointError, match="does not fit this Sequential.*build the network as it was before pruning"
    ):
        restore_state(stages, state)
    with pytest.raises(CheckpointError, match="does not fit"):
        restore_state(cut(trained()), {"stage": 0})


def test_errors_keep_their_scale() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    batches = [(torch.randn(16, 4), torch.randn(16, 2))]
    stages, again = (HostedStages(model, torch.zeros(1, 4), dataset_size=16, loss_fn=F.mse_loss) for _ in range(2))
    stages.measure(batches)
    restore_state(again, take_state(stages))
    again.measure(batches)
    assert again.pruner.likelihood.sums.tolist() == stages.pruner.likelihood.sums.tolist()  # type: ignore[union-attr]


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="choose another folder"):
        save_network(cut(trained()), tmp_path)
