"""Layers with weights: masked == removed, in evaluation and in training, gradients included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import apply_plan, trace
from rbprune.graph.layer_shares import layers_without
from tests.graph.hostile import check_exact, image
from tests.graph.operations import Case, Net, Refusal, check_operation, check_refused, conv
from tests.networks import scramble, tiny_cnn

NETS: dict[str, Case] = {
    "grouped as a function": (
        lambda: Net(
            lambda n, x: n.c(F.conv2d(n.a(x), n.weight, n.bias, padding=1, groups=2)),
            **{"a": conv(3, 8), "c": conv(6, 2)},
            weight=nn.Parameter(torch.randn(6, 4, 3, 3)),
            bias=nn.Parameter(torch.randn(6)),
        ),
        (3, 6, 6),
        {"a": 4, "weight": 3},
    ),
    "lstm and gru as readers": (
        lambda: Net(
            lambda n, x: n.b(n.lstm(y := n.a(x).flatten(2).transpose(1, 2))[0][:, -1] + n.gru(y)[0][:, 0]),
            a=conv(3, 6),
            lstm=nn.LSTM(6, 4, batch_first=True, bidirectional=True, num_layers=2),
            gru=nn.GRU(6, 8, batch_first=True),
            b=nn.Linear(8, 2),
        ),
        (3, 4, 5),
        {"a": 6},
    ),
    "linear over space": (
        lambda: Net(
            lambda n, x: n.b(n.back(F.gelu(n.mix(n.bn(n.a(x)).flatten(2)))).unflatten(2, (6, 6))),
            **{"a": conv(3, 8), "bn": nn.BatchNorm2d(8), "b": conv(8, 2)},
            **{"mix": nn.Linear(36, 5), "back": nn.Linear(5, 36)},
        ),
        (3, 6, 6),
        {"a": 8},
    ),
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
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETS)
def test_masked_equals_removed(name: str, training: bool) -> None:
    check_operation(*NETS[name], training)


REFUSED: dict[str, Refusal] = {
    "a recurrent layer without a batch": (
        lambda: Net(lambda n, x: n.b(n.rnn(n.a(x))[0]), a=nn.Linear(3, 6), rnn=nn.GRU(6, 4), b=nn.Linear(4, 2)),
        (3,),
        "'rnn' (GRU) of an input without a batch dimension has no rule",
    ),
    "linear over space and over channels": (
        lambda: Net(
            lambda n, x: n.b(n.mix(n.mix(n.a(x).flatten(2)).transpose(1, 2)).transpose(1, 2).unflatten(2, (3, 2))),
            **{"a": conv(3, 6), "b": conv(6, 2), "mix": nn.Linear(6, 6)},
        ),
        (3, 3, 2),
        "'mix' (Linear)",
    ),
    "depthwise as a function": (
        lambda: Net(
            lambda n, x: n.b(F.conv2d(n.a(x), n.weight, groups=6)),
            **{"a": conv(3, 6), "b": conv(6, 2)},
            weight=nn.Parameter(torch.randn(6, 1, 3, 3)),
        ),
        (3, 6, 6),
        "bound to each other by conv2d with groups",
    ),
    "attention": (
        lambda: Net(
            lambda n, x: n.b(torch.bmm((y := n.a(x).flatten(2)).transpose(1, 2), y)), a=conv(3, 6), b=nn.Linear(36, 2)
        ),
        (3, 6, 6),
        "bmm sums over channels",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_frozen_with_the_line(name: str) -> None:
    check_refused(*REFUSED[name])


def test_an_input_without_a_batch_is_refused() -> None:
    model = nn.Sequential(conv(6, 6), nn.ReLU(), conv(6, 2))
    graph = trace(model, torch.zeros(6, 6, 6))
    assert graph.sites == []


@pytest.mark.parametrize("persistent", [True, False])
def test_buffers_per_channel_are_cut(persistent: bool) -> None:
    class Buffers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = conv(3, 6), conv(6, 2)
            self.register_buffer("scale", torch.rand(6), persistent=persistent)
            self.register_buffer("shift", torch.rand(1, 6, 1, 1), persistent=persistent)
            self.plain = torch.rand(6, 1, 1).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.b((self.a(x) * self.scale.view(1, -1, 1, 1) + self.shift) * self.plain)

    model = scramble(Buffers())
    graph = check_exact(model, image(), sites={"a": 6})
    assert model.scale.shape[0] == model.plain.shape[0] == graph["a"].channels
    assert ("scale" in model.state_dict()) is persistent


def test_linear_after_flatten_owns_a_range_of_columns_per_channel() -> None:
    graph = trace(tiny_cnn(), torch.zeros(1, 1, 8, 8))
    (part,) = [part for part in graph["4"].parts if part.role == "in"]
    assert part.owner == "8"
    assert part.positions[2].tolist() == list(range(32, 48))


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("ways", [1, 2])
def test_multiplications_of_recurrent_layers_are_counted(kind: type[nn.RNNBase], gates: int, ways: int) -> None:
    """By hand: every step multiplies what each layer reads, and its own state, by the weights of all gates."""
    recurrent = kind(6, 5, num_layers=2, batch_first=True, bidirectional=ways == 2)
    model = Net(
        lambda n, x: n.b(n.recurrent(n.a(x))[0]), a=nn.Linear(3, 6), recurrent=recurrent, b=nn.Linear(5 * ways, 2)
    )

    def by_hand(inputs: int) -> int:
        return 7 * (3 * inputs + ways * gates * 5 * (inputs + 5 + ways * 5 + 5) + ways * 5 * 2)

    graph = trace(model, torch.zeros(2, 7, 3))
    assert graph.macs() == by_hand(6)
    assert graph.macs_without({"a": 2}) == by_hand(4)
    graph.remove({"a": [0, 4]})
    assert graph.macs() == by_hand(4)
    assert sum(layer.macs for layer in graph.history().original_layers(graph.layers())) == by_hand(6)


def test_noise_can_be_put_on_what_a_recurrent_layer_reads() -> None:
    model = Net(lambda n, x: n.b(n.gru(n.a(x))[0]), a=nn.Linear(3, 6), gru=nn.GRU(6, 4), b=nn.Linear(4, 2))
    graph = trace(model, torch.zeros(5, 2, 3))
    assert [(site.name, site.consumers) for site in graph.sites] == [("a", ["gru"])]
    graph.remove({"a": [0, 4]})
    assert model.gru.input_size == 4
    assert model(torch.zeros(5, 2, 3)).shape == (5, 2, 2)


def test_multiplications_of_a_linear_layer_over_space_follow_the_channels() -> None:
    def make() -> nn.Module:
        return Net(
            lambda n, x: n.b(n.mix(n.a(x).flatten(2)).unflatten(2, (3, 5))),
            **{"a": conv(3, 8), "b": conv(8, 2), "mix": nn.Linear(15, 15)},
        )

    def by_hand(channels: int) -> int:
        return 15 * 27 * channels + channels * 15 * 15 + 15 * 9 * channels * 2

    model, x = make(), torch.zeros(2, 3, 3, 5)
    graph = trace(model, x)
    assert graph.macs() == by_hand(8)
    assert graph.macs_per_channel(graph["a"]) == pytest.approx(by_hand(1))
    assert graph.macs_without({"a": 3}) == pytest.approx(by_hand(5))
    assert sum(layer.macs for layer in layers_without(graph, {"a": 3})) == by_hand(5)
    dense = graph.params()
    graph.remove({"a": [0, 4, 7]})
    assert graph.macs() == by_hand(5)
    assert graph.params() == 27 * 5 + 225 + 90 < dense
    again = trace(model, x)
    assert again.macs() == by_hand(5)
    again.remove({"a": [1]})
    assert again.macs() == by_hand(4)
    assert sum(layer.macs for layer in again.history().original_layers(again.layers())) == by_hand(8)
    replayed = apply_plan(make(), again.history().plan)
    assert trace(replayed, x).macs() == by_hand(4)
