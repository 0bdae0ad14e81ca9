"""The machine under a run."""

from __future__ import annotations

import pytest
import torch

from rbprune.settings.sections import RuntimeSettings
from rbprune.train.engine import Engine


@pytest.mark.parametrize("number", [0, 7, 2**63 + 5])
def test_a_step_draws_the_numbers_that_its_seed_gives(number: int) -> None:
    engine = Engine(RuntimeSettings(accelerator="cpu"))
    torch.manual_seed(number)
    wanted = torch.rand(3), torch.randn(3), torch.randperm(5)
    engine.seed(number)
    drawn = torch.rand(3), torch.randn(3), torch.randperm(5)
    assert all(torch.equal(a, b) for a, b in zip(wanted, drawn, strict=True))
