"""Branches as sites of one channel, and which names go with them."""

from __future__ import annotations

from rbprune.graph.branch import is_replaced, make_branch


def test_a_branch_is_a_site_of_one_channel_that_may_go_whole() -> None:
    branch = make_branch("layer1.1", "layer1.1.bn2", [{"layer1.1": ["post"]}])
    assert (branch.channels, branch.original, branch.parts, branch.keeps_one) == (1, 1, [], False)
    assert branch.removes("layer1.1.conv1.weight")
    assert not branch.removes("layer1.1.post.weight"), "what is left of the block"
    assert not branch.removes("layer1.10.conv1")


def test_what_is_inside_of_a_replaced_module_is_gone() -> None:
    gone = {"a": [], "b.c": ["d", "torch.relu"]}
    names = ("a", "a.weight", "ab", "b", "b.c", "b.c.d.weight", "b.c.dd", "b.c.e.weight")
    assert [name for name in names if is_replaced(name, gone)] == ["a", "a.weight", "b.c", "b.c.dd", "b.c.e.weight"]
