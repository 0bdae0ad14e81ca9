"""Factors at the input of every consumer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import trace
from rbprune.errors import UnprunableError
from rbprune.methods.channel_factor import ChannelFactor, Gates, _ScaleChannels
from tests.networks import relative_error, scramble, stage_of, tiny_cnn


@pytest.mark.parametrize("per", ["example", "batch"])
def test_noise_multiplies_the_input_of_the_consumer(per: str) -> None:
    model = scramble(tiny_cnn()).train()
    x = torch.randn(5, 1, 8, 8, dtype=torch.float64)
    stage_of(model, ["4"], x, noise=per, rate_init=0.4)
    seen: list[tuple[Tensor, Tensor]] = []
    plain = model[:8](x).detach()
    model[8].register_forward_hook(lambda module, args, output: seen.append((args[0], output)))
    torch.manual_seed(3)
    model(x)
    factor = (seen[0][0] / plain).view(5, 12, 16)
    expected = factor.nanmean(2, keepdim=True).expand_as(factor)
    assert relative_error(expected.nan_to_num(), torch.where(factor.isnan(), expected, factor).nan_to_num()) < 1e-6
    torch.manual_seed(3)
    xi = torch.randn(5 if per == "example" else 1, 12)
    theta = (0.6 + (0.4 * 0.6) ** 0.5 * xi).expand(5, 12).double()
    seen_theta = factor.nanmean(2)
    assert relative_error(theta[~seen_theta.isnan()], seen_theta[~seen_theta.isnan()]) < 1e-5


def test_all_consumers_of_a_channel_see_the_same_noise() -> None:
    class Fork(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(x)
            return self.d(torch.cat([self.b(y), self.c(y)], 1))

    model = Fork()
    stage_of(model, ["a"], torch.zeros(2, 3), rate_init=0.5)
    seen: dict[str, Tensor] = {}
    for name in "bc":
        getattr(model, name).register_forward_hook(lambda m, args, out, name=name: seen.__setitem__(name, args[0]))
    model(torch.randn(6, 3))
    first = seen["b"]
    assert torch.equal(first, seen["c"])
    model(torch.randn(6, 3))
    assert not torch.equal(first, seen["b"]), "every forward pass draws anew"


def test_noise_reaches_a_layer_that_is_called_by_keyword() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(input=self.a(input=x))

    model, x = Named(), torch.randn(6, 3)
    plain = model(x)
    stage_of(model, ["a"], torch.zeros(2, 3), rate_init=0.5)
    assert not torch.allclose(plain, model.train()(x))


class Frames(nn.Module):
    """A sum that is read for each of two frames by one layer, and for both together by another."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.a, self.b, self.head = nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x.flatten(0, 1))
        y = y + self.b(self.a(y).relu())
        return self.head(y.unflatten(0, (x.shape[0], x.shape[1])).mean(1))


def test_readers_that_see_other_numbers_of_examples_cannot_share_a_factor_and_are_refused_by_name() -> None:
    model, x = Frames(), torch.randn(3, 2, 3)
    stage = stage_of(model, ["stem"], x)
    with pytest.raises(UnprunableError, match=r"read the channels of 'stem' see 6 and 3 examples .*noise='batch'"):
        model(x)
    stage.abandon()
    for name, noise in (("stem", "batch"), ("a", "example")):
        stage = stage_of(model, [name], x, noise=noise)
        assert model(x).shape == (3, 2)
        assert model(torch.randn(5, 2, 3)).shape == (5, 2), "another batch is another pass"
        model.a(torch.randn(7, 4))  # and a part that is called by itself belongs to none
        stage.abandon()


def test_a_reader_that_is_kept_in_evaluation_has_the_mean_beside_others_with_noise() -> None:
    model, x = Frames(), torch.randn(3, 1, 3)
    stage = stage_of(model, ["stem"], x)
    model.a.eval()
    assert model(x).shape == (3, 2)
    stage.abandon()


def test_noise_works_on_every_site_of_a_concatenation() -> None:
    class Concat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(3, 5), nn.Linear(9, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.c(torch.cat([self.a(x), self.b(x)], 1))

    model = Concat().double()
    x = torch.randn(4, 3, dtype=torch.float64)
    stage = stage_of(model, ["b"], x, confidence=0)
    with torch.no_grad():
        stage.factors.rate.copy_(torch.tensor([0.1, 0.2, 0.3, 0.9, 0.9]))
        y = torch.cat([model.a(x), model.b(x) * torch.tensor([0.9, 0.8, 0.7, 0.1, 0.1], dtype=torch.float64)], 1)
        assert relative_error(F.linear(y, model.c.weight, model.c.bias), model.eval()(x)) < 1e-6
        stage.finish(batches=[])
        wanted = y.clone()
        wanted[:, 7:] = 0
        assert model.c.in_features == 7
        assert model(x).shape == (4, 2)


@pytest.mark.parametrize("shape", [(5, 3, 1, 1), (1, 3, 1, 1), (5, 3), (1, 3)])
def test_the_gradients_are_those_of_a_plain_product(shape: tuple[int, ...]) -> None:
    x = torch.randn(5, 3, *[4] * (len(shape) - 2), dtype=torch.float64, requires_grad=True)
    theta = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    outside = torch.randn_like(x)
    plain = torch.autograd.grad(x * theta, (x, theta), outside)
    scratch: dict[Any, Tensor] = {}
    for _ in range(2):  # the second time in memory that is used again
        ours = torch.autograd.grad(_ScaleChannels.apply(x, theta, scratch), (x, theta), outside)
        for a, b in zip(plain, ours, strict=True):
            torch.testing.assert_close(a, b)
    assert len(scratch) == 1
    first = torch.autograd.grad(_ScaleChannels.apply(x, theta, scratch), theta, outside)[0].clone()
    torch.autograd.grad(_ScaleChannels.apply(x, theta, scratch), theta, -outside)
    torch.testing.assert_close(first, plain[1], msg="what was given away is not written over")


def test_memory_for_images_of_many_sizes_does_not_grow_for_ever() -> None:
    scratch: dict[Any, Tensor] = {}
    theta = torch.ones(1, 2, requires_grad=True)
    for rows in range(1, 41):
        _ScaleChannels.apply(torch.ones(rows, 2), theta, scratch).sum().backward()
    assert len(scratch) == 32
    assert theta.grad is not None and theta.grad.tolist() == [[820.0, 820.0]]


def test_factors_of_one_are_not_multiplied_at_all() -> None:
    class Nothing(ChannelFactor):
        def draw(self, rows: int) -> None:
            return None

        def mean(self) -> None:
            return None

    model = tiny_cnn()
    graph = trace(model, torch.zeros(1, 1, 8, 8))
    x, seen = torch.randn(2, 1, 8, 8), []
    gates = Gates(graph, [graph["0"]], Nothing())
    model[4].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    between = model[3].register_forward_hook(lambda module, args, output: seen.append(output))
    model(x)
    assert seen[0] is seen[1], "the very tensor"
    between.remove()
    gates.detach()


class FramesAndWhole(nn.Module):
    """One hidden layer that works on each of two frames, another that works on their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.head = nn.Linear(3, 4), nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.b(self.a(x.flatten(0, 1)).relu()).relu()
        return self.head(self.c(y.unflatten(0, (x.shape[0], x.shape[1])).mean(1)).relu())


def test_sites_that_see_other_numbers_of_examples_are_not_weighed_in_one_stage() -> None:
    """The slopes of all but the last draw would go unseen, and their channels would look as if nobody needed them."""
    model, x = FramesAndWhole(), torch.randn(3, 2, 3)
    stage_of(model, ["a", "c"], x)
    with pytest.raises(UnprunableError, match=r"'a' are read for 6 examples in a pass and those of 'c' for 3"):
        model.train()(x)
    for alone in ("a", "c"):
        again = FramesAndWhole()
        stage_of(again, [alone], x)
        again.train()(x)


class Sequences(nn.Module):
    """Steps of a sequence through a linear layer and a recurrent one."""

    def __init__(self, kind: type[nn.RNNBase], batch_first: bool) -> None:
        super().__init__()
        self.a, self.rnn = nn.Linear(3, 6), kind(6, 4, batch_first=batch_first)
        self.b = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.rnn(self.a(x))[0])


@pytest.mark.parametrize("per", ["example", "batch"])
@pytest.mark.parametrize("batch_first", [True, False], ids=["examples first", "steps first"])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_noise_on_the_input_of_a_recurrent_layer(kind: type[nn.RNNBase], batch_first: bool, per: str) -> None:
    model = scramble(Sequences(kind, batch_first)).train()
    x = torch.randn(*((5, 7) if batch_first else (7, 5)), 3, dtype=torch.float64)
    stage_of(model, ["a"], x, noise=per, rate_init=0.4)
    seen: list[Tensor] = []
    model.rnn.register_forward_hook(lambda module, args, output: seen.append(args[0]))
    torch.manual_seed(3)
    output = model(x)
    factor = seen[0] / model.a(x)
    factor = factor if batch_first else factor.transpose(0, 1)
    torch.manual_seed(3)
    xi = torch.randn(5 if per == "example" else 1, 6)
    theta = (0.6 + (0.4 * 0.6) ** 0.5 * xi).expand(5, 6).double()
    assert relative_error(theta.unsqueeze(1).expand_as(factor), factor) < 1e-6
    output.square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_zero_and_one_before_a_recurrent_layer_are_what_the_cut_network_computes() -> None:
    class Half(ChannelFactor):
        def draw(self, rows: int) -> Tensor:
            return torch.tensor([1.0, 0.0] * 3).expand(rows, 6)

    model = scramble(Sequences(nn.LSTM, True)).train()
    x = torch.randn(5, 7, 3, dtype=torch.float64)
    graph = trace(model, x)
    gates = Gates(graph, graph.sites, Half())
    masked = model(x)
    gates.detach()
    graph.remove({"a": [1, 3, 5]})
    assert relative_error(masked, model(x)) < 1e-12


def test_a_packed_sequence_takes_no_factor() -> None:
    model = Sequences(nn.LSTM, True).train()
    graph = trace(model, torch.zeros(2, 7, 3))
    Gates(graph, graph.sites, ChannelFactor())
    packed = nn.utils.rnn.pack_sequence([torch.zeros(3, 6), torch.zeros(2, 6)])
    with pytest.raises(UnprunableError, match="from a PackedSequence"):
        model.rnn(packed)


class StepsAndPlaces(nn.Module):
    """What a recurrent layer reads with the steps first is read by a linear layer too."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.rnn, self.beside = nn.Linear(3, 6), nn.GRU(6, 4), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        return self.rnn(x)[0] + self.beside(x)


def test_where_steps_and_examples_cannot_be_told_apart_a_factor_for_each_example_is_refused() -> None:
    model, square = StepsAndPlaces(), torch.randn(5, 5, 3)
    stage_of(model, ["a"], torch.randn(7, 5, 3))
    with pytest.raises(UnprunableError, match=r"shape \[5, 5, 6\] by another, which does not tell steps from examples"):
        model.train()(square)
    with pytest.raises(UnprunableError, match="see 5 and 7 examples"):
        model(torch.randn(7, 5, 3))
    model.eval()(square)
    model = StepsAndPlaces()
    stage_of(model, ["a"], square, noise="batch")
    model.train()(square)
