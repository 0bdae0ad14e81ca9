"""MACs beside torch's own counter of floating-point operations (two for each MAC), for one example."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from rbprune import trace


class Frames(nn.Module):
    """One convolution for each of several frames, as models of video do."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(self.a(x.flatten(0, 1)).relu()).mean((2, 3))
        return self.c(y.unflatten(0, (x.shape[0], x.shape[1])).mean(1))


class Pixels(nn.Module):
    """A linear layer for each place, with batch and places in one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3), nn.Linear(8, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(self.b(self.a(x).permute(0, 2, 3, 1).reshape(-1, 8)).relu())


@pytest.mark.parametrize("batch", [1, 2, 5])
@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 4, 3, groups=2)), (3, 9, 9)),
        (
            lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ConvTranspose2d(8, 6, 2, stride=2), nn.Conv2d(6, 2, 1)),
            (3, 8, 8),
        ),
        (lambda: nn.Sequential(nn.ConvTranspose1d(3, 8, 4, stride=3), nn.ReLU(), nn.Conv1d(8, 2, 3)), (3, 7)),
        (Frames, (10, 3, 8, 8)),
        (Pixels, (3, 8, 8)),
    ],
    ids=["convolutions", "transposed", "transposed 1d", "frames", "pixels"],
)
def test_macs_are_half_of_torchs_operations(make: Callable[[], nn.Module], shape: tuple[int, ...], batch: int) -> None:
    model, x = make(), torch.randn(batch, *shape)
    with FlopCounterMode(display=False) as counter:
        model(x)
    assert trace(model, x).macs() == counter.get_total_flops() / 2 / batch
