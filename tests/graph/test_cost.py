"""MACs and weights of networks that the graph cannot follow everywhere, against torch's own counter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from rbprune import trace
from rbprune.measure.count import count_kept
from tests.graph.operations import Net, conv


class Moody(nn.Module):
    """Layers behind control flow that depends on data."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up, self.fc = conv(6, 8), nn.ConvTranspose2d(8, 6, 2, stride=2), nn.Linear(10, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(self.up(self.conv(x)))
        return y if y.sum() > 0 else -y


class Standardised(nn.Conv2d):
    """A computed weight."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(x, weight, self.bias, self.stride, self.padding)


def flops(model: nn.Module, x: Tensor) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(x)
    return counter.get_total_flops() // 2 // len(x)


NETS: dict[str, Callable[[], nn.Module]] = {
    "control flow": lambda: nn.Sequential(conv(3, 7), nn.ReLU(), conv(7, 6), Moody(), conv(6, 2)),
    "standardised": lambda: nn.Sequential(conv(3, 7), nn.ReLU(), conv(7, 6), Standardised(6, 4, 3, padding=1)),
    "groups": lambda: Net(
        lambda n, x: F.conv2d(n.b(n.a(x).relu()), n.w, groups=3),
        a=conv(3, 7),
        b=conv(7, 6),
        w=nn.Parameter(torch.randn(6, 2, 3, 3)),
    ),
    "transposed": lambda: Net(
        lambda n, x: F.conv_transpose2d(n.b(n.a(x).relu()), n.w, stride=2),
        a=conv(3, 7),
        b=conv(7, 6),
        w=nn.Parameter(torch.randn(6, 4, 2, 2)),
    ),
    "computed linear": lambda: Net(
        lambda n, x: F.linear(n.b(n.a(x).relu()).mean((2, 3)), n.w * 2),
        a=conv(3, 7),
        b=conv(7, 6),
        w=nn.Parameter(torch.randn(4, 6)),
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_what_cannot_be_followed_is_counted(name: str) -> None:
    model, x = NETS[name]().eval(), torch.randn(2, 3, 5, 5)
    graph = trace(model, x)
    (site,) = graph.sites
    before = flops(model, x)
    assert graph.macs() == before
    weights = [p.numel() for n, p in model.named_parameters() if p.dim() > 1]
    assert graph.params() == sum(weights)
    assert graph.macs_without({site.name: 3}) == pytest.approx(before - 3 * graph.macs_per_channel(site))
    graph.remove({site.name: [0, 2, 3]})
    assert graph.macs() == flops(model, x)
    assert count_kept(graph).total.macs_ratio == 1
