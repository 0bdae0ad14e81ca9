"""Small networks, one for each operation that has a rule, each with an input's shape and the sites it must have."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    """Modules by name and a forward given as a function of (self, x)."""

    def __init__(self, forward: Callable[[Net, Tensor], Tensor], **modules: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.run = forward
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def conv(i: int, o: int, k: int = 3, **options: int) -> nn.Conv2d:
    return nn.Conv2d(i, o, k, padding=k // 2, **options)


def shuffle(x: Tensor, groups: int) -> Tensor:
    b, c, h, w = x.size()
    return x.view(b, groups, c // groups, h, w).transpose(1, 2).contiguous().view(b, c, h, w)


def reshaped(x: Tensor, groups: int) -> Tensor:
    n, c, h, w = x.shape
    return x.reshape(n, groups, c // groups, h, w).permute(0, 2, 1, 3, 4).reshape(n, c, h, w)


def half(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    left, right = y.chunk(2, dim=1)
    return net.b(torch.cat([F.relu(left), right * 2], 1))


def halves_by_size(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    left, right = torch.split(y, y.size(1) // 2, dim=1)
    return net.b(left + right)


def gate(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    s = net.fc2(F.relu(net.fc1(F.adaptive_avg_pool2d(y, 1))))
    return net.b(y * torch.sigmoid(s))


def select(net: Net, x: Tensor) -> Tensor:
    y = torch.stack([net.a(x), net.b(x)], 1)
    b, c, h, w = (s := net.s(y.sum(1).mean((2, 3), keepdim=True))).shape
    return net.c((y * s.view(b, 2, c // 2, h, w).softmax(1)).sum(1))


def normalised(net: Net, x: Tensor) -> Tensor:
    norm = net.norm
    y = F.batch_norm(net.a(x), norm.running_mean, norm.running_var, norm.weight, norm.bias, net.training)
    return net.b(F.relu(y))


def gate_by_size(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    s = net.fc(y.mean((2, 3))).view(y.size(0), y.size(1), 1, 1)
    return net.b(y * torch.sigmoid(s).expand_as(y))


def spread_by_size(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    return net.b(y + net.m(x).expand(-1, y.size(1), -1, -1))


def block(net: Net, x: Tensor) -> Tensor:
    y = F.relu(net.a(x))
    return net.d(F.relu(net.c(F.relu(net.b(y))) + y))


OPERATIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, int]]] = {
    "conv1d": (
        lambda: nn.Sequential(nn.Conv1d(3, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.Conv1d(6, 2, 3)),
        (3, 9),
        {"0": 6},
    ),
    "conv3d": (
        lambda: nn.Sequential(nn.Conv3d(2, 6, 2), nn.BatchNorm3d(6), nn.AvgPool3d(2), nn.Conv3d(6, 2, 1)),
        (2, 5, 5, 5),
        {"0": 6},
    ),
    "transposed": (
        lambda: nn.Sequential(
            nn.ConvTranspose2d(3, 6, 2, 2), nn.ELU(), nn.ConvTranspose2d(6, 5, 3), nn.Conv2d(5, 2, 1)
        ),
        (3, 5, 5),
        {"0": 6, "2": 5},
    ),
    "grouped": (
        lambda: nn.Sequential(conv(3, 8), nn.ReLU(), conv(8, 12, groups=4), nn.ReLU(), conv(12, 2)),
        (3, 6, 6),
        {"0": 2, "2": 3},
    ),
    "depthwise": (
        lambda: nn.Sequential(conv(3, 6), conv(6, 6, groups=6), nn.BatchNorm2d(6), nn.ReLU6(), conv(6, 2)),
        (3, 6, 6),
        {"0": 6},
    ),
    "depth multiplier": (
        lambda: nn.Sequential(conv(3, 4), conv(4, 8, groups=4), nn.ReLU(), conv(8, 2)),
        (3, 6, 6),
        {"0": 4},
    ),
    "group norm": (lambda: nn.Sequential(conv(3, 8), nn.GroupNorm(4, 8), nn.SiLU(), conv(8, 2)), (3, 6, 6), {"0": 4}),
    "instance norm": (
        lambda: nn.Sequential(conv(3, 6), nn.InstanceNorm2d(6, affine=True), nn.Mish(), conv(6, 2)),
        (3, 6, 6),
        {"0": 6},
    ),
    "instance norm without parameters": (
        lambda: nn.Sequential(conv(3, 6), nn.InstanceNorm2d(6), conv(6, 2)),
        (3, 6, 6),
        {"0": 6},
    ),
    "prelu": (lambda: nn.Sequential(conv(3, 6), nn.PReLU(6), conv(6, 2)), (3, 6, 6), {"0": 6}),
    "flatten": (
        lambda: nn.Sequential(conv(3, 6), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 5), nn.ReLU(), nn.Linear(5, 2)),
        (3, 6, 6),
        {"0": 6, "3": 5},
    ),
    "pixel shuffle": (lambda: nn.Sequential(conv(3, 16), nn.PixelShuffle(2), conv(4, 2)), (3, 4, 4), {"0": 4}),
    "pixel unshuffle": (lambda: nn.Sequential(conv(3, 4), nn.PixelUnshuffle(2), conv(16, 2)), (3, 4, 4), {"0": 4}),
    "channel shuffle module": (
        lambda: nn.Sequential(conv(3, 8), nn.ChannelShuffle(2), conv(8, 2)),
        (3, 4, 4),
        {"0": 4},
    ),
    "channel shuffle by view": (
        lambda: Net(lambda n, x: n.b(shuffle(n.a(x), 2)), a=conv(3, 8), b=conv(8, 2)),
        (3, 4, 4),
        {"a": 4},
    ),
    "channel shuffle by reshape": (
        lambda: Net(lambda n, x: n.b(reshaped(n.a(x), 4)), a=conv(3, 8), b=conv(8, 2)),
        (3, 4, 4),
        {"a": 2},
    ),
    "chunk": (lambda: Net(half, a=conv(3, 8), b=conv(8, 2)), (3, 4, 4), {"a": 4}),
    "split by size": (lambda: Net(halves_by_size, a=conv(3, 8), b=conv(4, 2)), (3, 4, 4), {"a": 4}),
    "squeeze and excitation": (
        lambda: Net(gate, a=conv(3, 6), fc1=conv(6, 3, 1), fc2=conv(3, 6, 1), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6, "fc1": 3},
    ),
    "residual": (
        lambda: Net(block, a=conv(3, 6), b=conv(6, 5), c=conv(5, 6), d=conv(6, 2)),
        (3, 5, 5),
        {"a": 6, "b": 5},
    ),
    "stack and sum": (
        lambda: Net(
            lambda n, x: n.c(torch.stack([n.a(x), n.b(x)], 1).sum(1)), a=conv(3, 6), b=conv(3, 6), c=conv(6, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "mean over space": (
        lambda: Net(lambda n, x: n.b(n.a(x).mean([2, 3])), a=conv(3, 6), b=nn.Linear(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "sum over space": (
        lambda: Net(lambda n, x: n.b(n.a(x).flatten(2).sum(-1)), a=conv(3, 6), b=nn.Linear(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "interpolate": (
        lambda: Net(lambda n, x: n.b(F.interpolate(n.a(x), scale_factor=2.0)), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "pad space": (
        lambda: Net(lambda n, x: n.b(F.pad(n.a(x), (1, 2, 0, 1))), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "pad channels": (
        lambda: Net(
            lambda n, x: n.c(F.pad(n.a(x), (0, 0, 0, 0, 1, 2)) + n.b(x)), a=conv(3, 4), b=conv(3, 7), c=conv(7, 2)
        ),
        (3, 5, 5),
        {"a": 4},
    ),
    "constants": (
        lambda: Net(lambda n, x: n.b((n.a(x) * 2 - 1) / 3 + 1), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "difference": (
        lambda: Net(lambda n, x: n.c(n.a(x) - n.b(x)), a=conv(3, 6), b=conv(3, 6), c=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "permute and linear": (
        lambda: Net(lambda n, x: n.b(n.a(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2), a=conv(3, 6), b=nn.Linear(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "softmax over space": (
        lambda: Net(lambda n, x: n.b(n.a(x).flatten(2).softmax(-1).mean(2)), a=conv(3, 6), b=nn.Linear(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "layer scale": (
        lambda: Net(
            lambda n, x: n.b(n.a(x) * n.gamma), a=conv(3, 6), b=conv(6, 2), gamma=nn.Parameter(torch.randn(6, 1, 1))
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "raw convolution": (
        lambda: Net(
            lambda n, x: F.conv2d(F.relu(F.conv2d(x, n.w, n.bias)), n.v),
            w=nn.Parameter(torch.randn(6, 3, 3, 3)),
            bias=nn.Parameter(torch.randn(6)),
            v=nn.Parameter(torch.randn(2, 6, 3, 3)),
        ),
        (3, 7, 7),
        {"w": 6},
    ),
    "reused module": (
        lambda: Net(lambda n, x: n.c(n.b(F.relu(n.b(n.a(x))))), a=conv(3, 6), b=conv(6, 6), c=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "spatial attention": (
        lambda: Net(lambda n, x: n.b(n.a(x) * torch.sigmoid(n.m(x))), a=conv(3, 6), m=conv(3, 1), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "ellipsis": (lambda: Net(lambda n, x: n.b(n.a(x)[..., ::2, ::2]), a=conv(3, 6), b=conv(6, 2)), (3, 6, 6), {"a": 6}),
    "squeeze": (
        lambda: Net(
            lambda n, x: n.b(n.a(x).mean((2, 3), keepdim=True).squeeze(-1).squeeze(-1)), a=conv(3, 6), b=nn.Linear(6, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "selective kernel": (
        lambda: Net(select, a=conv(3, 6), b=conv(3, 6), s=conv(6, 12, 1), c=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "raw batch norm": (
        lambda: Net(normalised, a=conv(3, 6), norm=nn.BatchNorm2d(6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "gate in the size of another": (
        lambda: Net(gate_by_size, a=conv(3, 6), fc=nn.Linear(6, 6), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "expand to the width of another": (
        lambda: Net(spread_by_size, a=conv(3, 6), m=conv(3, 1), b=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
    "view in the size of another": (
        lambda: Net(
            lambda n, x: n.c(n.b(x).mean((2, 3)).view(-1, (y := n.a(x)).size(1), 1, 1)) + n.d(y),
            a=conv(3, 6),
            b=conv(3, 6),
            c=conv(6, 2),
            d=conv(6, 2),
        ),
        (3, 5, 5),
        {"b": 6},
    ),
    "size of a plane": (
        lambda: Net(
            lambda n, x: n.b(F.interpolate(F.avg_pool2d(n.a(x), 2), size=x.shape[-2:]) / x.size(2)),
            a=conv(3, 6),
            b=conv(6, 2),
        ),
        (3, 6, 6),
        {"a": 6},
    ),
    "slice of all": (lambda: Net(lambda n, x: n.b(n.a(x)[:, :6]), a=conv(3, 6), b=conv(6, 2)), (3, 6, 6), {"a": 6}),
    "unbind": (
        lambda: Net(
            lambda n, x: n.c((y := torch.stack([n.a(x), n.b(x)], 2).sum(2)).unbind(0)[0].unsqueeze(0) + y),
            a=conv(3, 6),
            b=conv(3, 6),
            c=conv(6, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "scaled by a width": (
        lambda: Net(
            lambda n, x: n.c(n.b(n.a(x) / n.a.out_channels**0.5).relu()), a=conv(3, 6), b=conv(6, 5), c=conv(5, 2)
        ),
        (3, 5, 5),
        {"b": 5},
    ),
    "scaled by the width it reads": (
        lambda: Net(
            lambda n, x: n.c(n.b(n.a(x) * n.b.in_channels**-0.5).relu()), a=conv(3, 6), b=conv(6, 5), c=conv(5, 2)
        ),
        (3, 5, 5),
        {"b": 5},
    ),
    "scaled by normalised features": (
        lambda: Net(
            lambda n, x: n.c(n.b(n.norm(n.a(x)) / n.norm.num_features).relu()),
            a=conv(3, 6),
            norm=nn.BatchNorm2d(6),
            b=conv(6, 5),
            c=conv(5, 2),
        ),
        (3, 5, 5),
        {"b": 5},
    ),
    "concatenation in space": (
        lambda: Net(
            lambda n, x: n.c(torch.cat([n.a(x), n.b(x)], 2).flatten(1)), a=conv(3, 6), b=conv(3, 6), c=nn.Linear(300, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "concatenation in space before a convolution": (
        lambda: Net(
            lambda n, x: n.c(torch.cat([n.a(x), n.b(x)], 3) * torch.sigmoid(n.d(torch.cat([x, x], 3)))),
            a=conv(3, 6),
            b=conv(3, 6),
            c=conv(6, 2),
            d=conv(3, 6),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "concatenation in space, normalised": (
        lambda: Net(
            lambda n, x: n.c(n.norm(torch.cat([n.a(x).amax(-1), n.b(x).amax(-1)], -1).flatten(1))),
            a=conv(3, 6),
            b=conv(3, 6),
            norm=nn.BatchNorm1d(60),
            c=nn.Linear(60, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "concatenation in space with the input": (
        lambda: Net(
            lambda n, x: n.c(torch.cat([n.b(n.a(x)), x], 2).flatten(1)), a=conv(3, 6), b=conv(6, 3), c=nn.Linear(150, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "interleaved": (
        lambda: Net(
            lambda n, x: n.c(torch.stack([n.a(x), n.b(x)], 2).flatten(1, 2)), a=conv(3, 6), b=conv(3, 6), c=conv(12, 2)
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "stacked at the end": (
        lambda: Net(
            lambda n, x: n.c(torch.stack([n.a(x).mean((2, 3)), n.b(x).mean((2, 3))], -1).flatten(1)),
            a=conv(3, 6),
            b=conv(3, 6),
            c=nn.Linear(12, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "squeezed channels": (
        lambda: Net(
            lambda n, x: n.c(n.b(n.a(x)).squeeze(1).mean((-2, -1), keepdim=True).flatten(1)),
            a=conv(3, 6),
            b=conv(6, 3),
            c=nn.Linear(3, 2),
        ),
        (3, 5, 5),
        {"a": 6},
    ),
    "maximum": (
        lambda: Net(lambda n, x: n.c(torch.maximum(n.a(x), n.b(x))), a=conv(3, 6), b=conv(3, 6), c=conv(6, 2)),
        (3, 5, 5),
        {"a": 6},
    ),
}
