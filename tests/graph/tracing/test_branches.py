"""How branches can be removed: the block as a whole where it is a module, its modules where it is not; or why not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import models, trace
from rbprune.errors import UnprunableError
from tests.graph.operations import Net, conv
from tests.graph.residual_networks import FORMS, Block, Flat, residual_net

IMAGE = torch.zeros(2, 3, 8, 8)


@pytest.mark.parametrize("form", FORMS)
def test_a_block_is_replaced_by_what_is_left_of_it(form: str) -> None:
    run, steps = FORMS[form]
    graph = trace(residual_net(run), IMAGE)
    assert list(graph.branches) == ["1.0", "1.1", "1.2"]
    assert graph.branches["1.0"].choices[0] == {"1.0": steps}
    assert graph.frozen_branches == {}


def test_a_relu_stays_where_what_it_is_given_may_be_negative() -> None:
    net = nn.Sequential(conv(3, 6), Block(lambda b, x: F.relu(b.branch(x) + x)), nn.Flatten())
    assert trace(net, IMAGE).branches["1"].choices[0] == {"1": ["torch.relu"]}
    net = nn.Sequential(conv(3, 6), Block(FORMS["in place"][0]), nn.Flatten())
    assert trace(net, IMAGE).branches["1"].choices[0] == {"1": ["relu"]}


def test_where_no_module_is_the_block_its_modules_pass_on_and_the_last_gives_zeros() -> None:
    graph = trace(Flat(), IMAGE)
    assert {name: branch.choices for name, branch in graph.branches.items()} == {
        "branch of a": [{"a": [], "b": [], "bn": ["torch.zeros_like"]}],
        "tail": [{"tail": ["torch.zeros_like"]}],
    }


def test_the_factor_stands_on_the_last_module_with_parameters() -> None:
    wanted = {"squeeze and excitation": "1.0.bn2", "layer scale": "1.0.bn2", "dropout": "1.0.bn2"}
    for form, output in wanted.items():
        assert trace(residual_net(FORMS[form][0]), IMAGE).branches["1.0"].output == output
    graph = trace(models.build("torchvision:convnext_tiny"), torch.zeros(1, 3, 32, 32))
    assert graph.branches["features.1.0"].output == "features.1.0.block.5", "through a permutation and the layer scale"


def test_a_shortcut_that_hands_on_what_it_is_given_is_the_identity() -> None:
    net = Net(lambda n, x: n.d(n.skip(y := n.a(x)) + n.c(n.b(y))), a=conv(3, 6), b=conv(6, 5), c=conv(5, 6))
    net.skip, net.d = nn.Identity(), conv(6, 2)
    graph = trace(net, IMAGE)
    assert list(graph.branches) == ["branch of b"], "the site of b's channels has that name"
    assert [site.downsample for site in graph.sites if site.residual == "inside"] == [False]


def two(forward: Callable[[Net, Tensor], Tensor]) -> Net:
    return Net(forward, a=conv(3, 6), b=conv(6, 6), c=conv(6, 6), d=conv(6, 2))


REFUSED = {
    "another reader": (
        lambda n, x: n.d((y := n.a(x)) + n.c(z := n.b(y))) + z.mean(),
        "reads 'b' (Conv2d) inside of it",
    ),
    "a shared layer": (lambda n, x: n.d((y := n.a(x)) + n.c(n.b(n.b(y)))), "'b' inside of it is called 2 times"),
    "blended": (lambda n, x: n.d(torch.lerp(y := n.a(x), n.c(n.b(y)), 0.5)), "lerp does not simply add it"),
    "a scaled sum": (lambda n, x: n.d(torch.add(n.c(n.b(y := n.a(x))), y, alpha=2)), "add does not simply add it"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_branch_that_cannot_go_alone_is_refused_by_name(case: str) -> None:
    forward, reason = REFUSED[case]
    graph = trace(two(forward), IMAGE)
    assert graph.branches == {}
    (name,) = graph.frozen_branches
    assert reason in str(graph.frozen_branches[name])
    assert "test_branches.py" in str(graph.frozen_branches[name])
    with pytest.raises(UnprunableError, match="it is frozen"):
        graph.remove_blocks([name])


def test_a_kept_module_and_a_hook_keep_their_branch() -> None:
    net = residual_net(FORMS["relu after the sum"][0])
    assert list(trace(net, IMAGE, keep=["1.1.conv1"]).branches) == ["1.0", "1.2"]
    assert list(trace(net, IMAGE, keep=["1.1"]).branches) == ["1.0", "1.2"]
    net.get_submodule("1.2.conv2").register_forward_hook(lambda module, args, output: None)
    graph = trace(net, IMAGE)
    assert list(graph.branches) == ["1.0", "1.1"]
    assert "'1.2.conv2' has a forward hook" in str(graph.frozen_branches["1.2"])


def test_a_block_that_is_another_one_in_training_stays() -> None:
    def auxiliary(block: Block, x: Tensor) -> Tensor:
        inner = block.conv1(x)
        out = x + block.bn2(block.conv2(F.relu(inner)))
        return out + inner.mean() if block.training else out

    graph = trace(residual_net(auxiliary), IMAGE)
    assert graph.branches == {}
    assert "reads" in str(graph.frozen_branches["1.0"])


def test_a_branch_of_attention_is_no_obstacle() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        y = y + net.attention(y, y, y)[0]
        return net.c(net.b(y).relu())

    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    model = Net(forward, a=nn.Linear(3, 4), attention=attention, b=nn.Linear(4, 6), c=nn.Linear(6, 2))
    assert [site.name for site in trace(model, torch.zeros(2, 5, 3)).sites] == ["b"]
