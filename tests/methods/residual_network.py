"""A small residual network with two sums, and data for it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks import stripes


class Residual(nn.Module):
    """Two sums for images of 1 x 8 x 8: one behind an identity, one behind a convolution, which reads the first.

    The second block normalises before it convolves, so a norm reads the first sum too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(1, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.a, self.a_norm = nn.Conv2d(6, 5, 3, padding=1, bias=False), nn.BatchNorm2d(5)
        self.b, self.b_norm = nn.Conv2d(5, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.before = nn.BatchNorm2d(6)
        self.c, self.c_norm = nn.Conv2d(6, 7, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(7)
        self.d, self.d_norm = nn.Conv2d(7, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.down, self.down_norm = nn.Conv2d(6, 8, 1, stride=2, bias=False), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.with_factors(x, None, None)

    def with_factors(self, x: Tensor, one: Tensor | None, two: Tensor | None) -> Tensor:
        """The forward with factors written out at every reader of the first and of the second sum."""

        def times(value: Tensor, factor: Tensor | None) -> Tensor:
            return value if factor is None else value * factor.view(-1, *[1] * (value.dim() - 2))

        y = F.relu(self.stem_norm(self.stem(x)))
        y = y + self.b_norm(self.b(F.relu(self.a_norm(self.a(times(y, one))))))
        z = F.relu(self.c_norm(self.c(times(F.relu(self.before(y)), one))))
        z = self.d_norm(self.d(z)) + self.down_norm(self.down(times(y, one)))
        return self.head(times(F.relu(z).mean((2, 3)), two))


def network(seed: int = 0) -> Residual:
    torch.manual_seed(seed)
    model = Residual().double().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.3)
            module.running_mean.normal_(0, 0.3)  # type: ignore[union-attr]
            module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    return model


def data(count: int = 16) -> tuple[Tensor, Tensor]:
    images, labels = stripes(count)
    return images.double(), labels


SUMS = ["stem", "d"]
