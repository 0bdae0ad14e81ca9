"""LeNet-5 in the form that Caffe made common, for 28x28 grey images."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class LeNet5(nn.Module):
    """20 and 50 filters of 5x5, each with ReLU and 2x2 max pooling, then 500 hidden units.

    >>> import torch
    >>> LeNet5()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(self, *, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.flatten(1)
        scores: Tensor = self.fc2(F.relu(self.fc1(x)))
        return scores
