"""Every operation that has a rule: masked == removed, in evaluation and in training, gradients included."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rbprune
from rbprune import trace
from tests.graph.arithmetic import ARITHMETIC
from tests.graph.deciding import DECIDING
from tests.graph.operations import OPERATIONS, Net, conv
from tests.networks import check_cut, random_drop, scramble

NETS = {**OPERATIONS, **ARITHMETIC, **DECIDING}


def asserting(net: Net, x: Tensor) -> Tensor:
    y = net.a(x)
    torch._assert(y.size(1) == 6, "six channels")
    return net.b(y)


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETS)
def test_masked_equals_removed(name: str, training: bool) -> None:
    make, shape, sites = NETS[name]
    torch.manual_seed(1)
    model = scramble(make()).train(training)
    x = torch.randn(3, *shape, dtype=torch.float64)
    graph = trace(model, x)
    assert {site.name: site.channels for site in graph.sites} == sites
    drop = random_drop(graph)
    fresh = copy.deepcopy(model)
    plan = check_cut(graph, drop, x)
    replayed = rbprune.apply_plan(fresh.eval(), rbprune.Plan.from_json(plan.to_json()))
    assert {k: v.shape for k, v in replayed.state_dict().items()} == {k: v.shape for k, v in model.state_dict().items()}
    widths = ("in_channels", "out_channels", "groups", "num_features", "in_features", "out_features", "num_groups")
    for (_, a), (_, b) in zip(model.named_modules(), replayed.named_modules(), strict=True):
        assert [getattr(a, w, None) for w in widths] == [getattr(b, w, None) for w in widths]


REFUSED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "layer norm over channels": (
        lambda: Net(
            lambda n, x: n.b(n.norm(n.a(x).permute(0, 2, 3, 1))), a=conv(3, 6), norm=nn.LayerNorm(6), b=nn.Linear(6, 2)
        ),
        (3, 5, 5),
        "'norm' (LayerNorm) normalises over channels",
    ),
    "channels shifted": (
        lambda: Net(lambda n, x: n.b(n.a(x).roll(1, 1)), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "roll moves channels",
    ),
    "a written width": (
        lambda: nn.Sequential(conv(3, 6), nn.Unflatten(1, (2, 3)), nn.Flatten(1, 2), conv(6, 2)),
        (3, 5, 5),
        "'1' (Unflatten) fixes the number of channels",
    ),
    "one group": (
        lambda: nn.Sequential(conv(3, 6), nn.GroupNorm(1, 6), conv(6, 2)),
        (3, 5, 5),
        "'1' (GroupNorm) normalises over channels",
    ),
    "softmax over channels": (
        lambda: nn.Sequential(conv(3, 6), nn.Softmax(1), conv(6, 2)),
        (3, 5, 5),
        "'1' (Softmax) runs over channels",
    ),
    "slice": (
        lambda: Net(lambda n, x: n.b(n.a(x)[:, 1:4]), a=conv(3, 6), b=conv(3, 2)),
        (3, 5, 5),
        "getitem selects channels by position",
    ),
    "written split": (
        lambda: Net(lambda n, x: n.b(n.a(x).split([2, 4], 1)[1]), a=conv(3, 6), b=conv(4, 2)),
        (3, 5, 5),
        "split selects channels by position",
    ),
    "written view": (
        lambda: Net(lambda n, x: n.b(n.a(x).view(-1, 150)), a=conv(3, 6), b=nn.Linear(150, 2)),
        (3, 5, 5),
        "view fixes the number of channels",
    ),
    "matrix product": (
        lambda: Net(lambda n, x: n.b(torch.matmul(n.a(x), n.a(x).transpose(2, 3))), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "matmul has no channel rule",
    ),
    "maximum over channels": (
        lambda: Net(lambda n, x: n.b(n.a(x).max(1, keepdim=True)[0]), a=conv(3, 6), b=conv(1, 2)),
        (3, 5, 5),
        "max runs over channels",
    ),
    "normalize over channels": (
        lambda: Net(lambda n, x: n.b(F.normalize(n.a(x), 2, 1)), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "normalize runs over channels",
    ),
    "pooling over channels": (
        lambda: Net(
            lambda n, x: n.b(F.max_pool1d(n.a(x).mean((2, 3)).unsqueeze(1), 3, 1, 1)), a=conv(3, 6), b=nn.Linear(6, 2)
        ),
        (3, 5, 5),
        "max_pool1d does not find the channels in dimension 1",
    ),
    "pooling of channels and space without a batch": (
        lambda: Net(lambda n, x: n.b(F.max_pool2d(n.a(x).flatten(2), 3, 1, 1)), a=conv(3, 6), b=nn.Conv1d(6, 2, 1)),
        (3, 5, 5),
        "max_pool2d does not find the channels in dimension 1",
    ),
    "expand to a part of the width of another": (
        lambda: Net(
            lambda n, x: n.b(n.a(x).expand(-1, n.c(x).size(1) // 2, -1, -1)), a=conv(3, 6), b=conv(6, 2), c=conv(3, 12)
        ),
        (3, 5, 5),
        "expand fixes the number of channels",
    ),
    "expand_as to something fixed": (
        lambda: Net(lambda n, x: n.b(n.a(x).mean((2, 3), keepdim=True).expand_as(x)), a=conv(6, 6), b=conv(6, 2)),
        (6, 5, 5),
        "expand_as fixes the number of channels",
    ),
    "split of space by the number of channels": (
        lambda: Net(lambda n, x: n.b((y := n.a(x)).split(y.size(1), 2)[0]), a=conv(3, 6), b=conv(6, 2)),
        (3, 12, 12),
        "split uses the number of channels",
    ),
    "assertion on the number of channels": (
        lambda: Net(asserting, a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "_assert uses the number of channels",
    ),
    "division by the number of channels": (
        lambda: Net(lambda n, x: n.b((y := n.a(x)) * y.size(1) ** -0.5), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "mul uses the number of channels",
    ),
    "slice by the number of other channels": (
        lambda: Net(lambda n, x: n.c(n.b(x)[:, : n.a(x).size(1)]), a=conv(3, 6), b=conv(3, 6), c=conv(6, 2)),
        (3, 5, 5),
        "getitem uses the number of channels",
    ),
    "weight with another use": (
        lambda: Net(lambda n, x: n.b(n.a(x)) + n.a.weight.square().sum(), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "'a.weight' is used by square",
    ),
    "scale with another use": (
        lambda: Net(
            lambda n, x: n.b(n.norm(n.a(x))) + n.norm.weight.abs().sum(),
            a=conv(3, 6),
            norm=nn.BatchNorm2d(6),
            b=conv(6, 2),
        ),
        (3, 5, 5),
        "'norm.weight' is used by 'norm' and elsewhere",
    ),
    "tied weights": (
        lambda: Net(lambda n, x: F.conv2d(n.b(F.relu(n.a(x))), n.a.weight), a=conv(3, 6), b=conv(6, 3)),
        (3, 5, 5),
        "'a.weight' is used by 'a' and elsewhere",
    ),
    "squeeze of all dimensions": (
        lambda: Net(lambda n, x: n.b(n.a(x).mean((2, 3), keepdim=True).squeeze()), a=conv(3, 6), b=nn.Linear(6, 2)),
        (3, 5, 5),
        "name the dimension",
    ),
    "sorted": (
        lambda: Net(lambda n, x: n.b(torch.sort(n.a(x), 1)[0]), a=conv(3, 6), b=conv(6, 2)),
        (3, 5, 5),
        "sort has no channel rule",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_frozen_with_the_line(name: str) -> None:
    make, shape, reason = REFUSED[name]
    graph = trace(make(), torch.zeros(2, *shape))
    first = next(iter(graph.frozen))
    assert first not in [site.name for site in graph.sites]
    assert reason in str(graph.frozen[first])


def test_a_module_with_control_flow_is_left_alone_and_the_rest_pruned() -> None:
    class Moody(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    model = nn.Sequential(conv(3, 6), nn.ReLU(), conv(6, 5), Moody(), conv(5, 4), nn.ReLU(), conv(4, 2))
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert [site.name for site in graph.sites] == ["0", "4"]
    assert "'3' (Moody) has no channel rule" in str(graph.frozen["2"])


def test_a_batch_norm_with_a_forward_of_its_own_is_left_as_it_was() -> None:
    class Counting(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:
            if self.training:
                self.num_batches_tracked.add_(1)
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.training)

    Counting.__module__ = "elsewhere"
    model = nn.Sequential(conv(3, 6), Counting(6), conv(6, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    graph = trace(model, torch.randn(2, 3, 5, 5))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    graph.remove({"0": [1, 2]})
    assert model[1].num_features == 4
    assert model(torch.randn(2, 3, 5, 5)).shape == (2, 2, 5, 5)


def test_a_number_of_channels_that_is_returned_does_not_change() -> None:
    model = Net(lambda n, x: (n.b(y := n.a(x)), y.size(1)), a=conv(3, 6), b=conv(6, 2))
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert graph.sites == []
    assert "output uses the number of channels" in str(graph.frozen["a"])


def test_auxiliary_heads_are_cut_with_the_rest() -> None:
    class Aux(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.aux = conv(3, 6), conv(6, 2), conv(6, 4)

        def forward(self, x: Tensor) -> Tensor | dict[str, Tensor]:
            y = self.a(x)
            return {"out": self.b(y), "aux": self.aux(y)} if self.training else self.b(y)

    model = Aux()
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert graph["a"].consumers == ["b", "aux"]
    graph.remove({"a": [0, 3]})
    assert set(model.train()(torch.zeros(2, 3, 5, 5))) == {"out", "aux"}
    assert model.eval()(torch.zeros(2, 3, 5, 5)).shape == (2, 2, 5, 5)
