"""A model's state on disk: versions of modules, and what is no tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import rbprune
from rbprune import models
from rbprune.errors import ModelError
from rbprune.runs.folder import RunFolder
from rbprune.utils.state import load_state, state_tensors


@pytest.mark.filterwarnings("ignore:.*has no list of checksums")
def test_a_model_that_asks_for_the_version_of_its_weights(tmp_path: Path) -> None:
    """torchvision's MNASNet loads nothing that does not say which one it is."""
    model = models.build("torchvision:mnasnet0_5")
    graph = rbprune.trace(model, torch.zeros(2, 3, 64, 64))
    RunFolder(tmp_path).write_network(model, graph.remove({graph.sites[0].name: [0]}))
    loaded = rbprune.load(tmp_path, models.build("torchvision:mnasnet0_5"))
    x = torch.randn(1, 3, 64, 64)
    assert torch.equal(loaded.eval()(x), model.eval()(x))
    fresh = models.build("torchvision:mnasnet0_5")
    whole = models.build("torchvision:mnasnet0_5")
    load_state(fresh, state_tensors(whole))
    assert torch.equal(fresh.eval()(x), whole.eval()(x))


class Remembers(nn.Linear):
    """A layer with a state of its own kind."""

    def __init__(self, extra: Any) -> None:
        super().__init__(2, 2)
        self.extra = extra

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        self.extra = state


def test_only_tensors_are_written() -> None:
    with pytest.raises(ModelError, match=r"'0\._extra_state' of this Sequential is a dict, and only tensors"):
        state_tensors(nn.Sequential(Remembers({"step": 3})))
    tensors = state_tensors(nn.Sequential(Remembers(torch.tensor(3))))
    other = Remembers(torch.tensor(0))
    load_state(nn.Sequential(other), tensors)
    assert isinstance(other.extra, Tensor)
    assert int(other.extra) == 3
