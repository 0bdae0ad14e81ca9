"""A worker of a loader that dies, here by the signal that the kernel sends when memory runs out."""

from __future__ import annotations

import os
import signal

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from rbprune.errors import DataError
from rbprune.utils.loader_workers import worker_death, worker_deaths_named


class Dying(Dataset[tuple[Tensor, int]]):
    """Examples of which one takes its process along."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(1, 8, 8), index % 3


@pytest.mark.parametrize("batch_size", [2, 32])
def test_a_dead_worker_is_named_with_the_remedy(batch_size: int) -> None:
    with (
        pytest.raises(DataError, match=r"a worker of the data loader died: .*; .*fewer workers"),
        worker_deaths_named(),
    ):
        for _ in DataLoader(Dying(), batch_size, num_workers=1):
            pass


def test_any_other_error_stays_what_it_is() -> None:
    assert worker_death(RuntimeError("shape mismatch")) is None
    assert worker_death(ConnectionResetError("peer")) is None
    for error in (RuntimeError, OSError, EOFError):
        with pytest.raises(error, match="mine"), worker_deaths_named():
            raise error("mine")
