"""Sites: channels that occur on the same axes are one set, in the order of the axes."""

from __future__ import annotations

import torch

from rbprune.graph.sites import Axis, Role, collect_sites


def sites(*axes: tuple[str, Role, list[int]]) -> list[tuple[str, list[tuple[str, str, list[list[int]]]]]]:
    found = collect_sites([Axis(owner, role, torch.tensor(ids)) for owner, role, ids in axes], torch.arange(100))
    return [(s.name, [(p.owner, p.role, p.positions.tolist()) for p in s.parts]) for s in found]


def test_a_site_has_a_part_on_every_axis_where_its_channels_occur() -> None:
    assert sites(("a", "out", [1, 2]), ("b", "in", [2, 1]), ("c", "in", [1, 1, 2, 2])) == [
        ("a", [("a", "out", [[0], [1]]), ("b", "in", [[1], [0]]), ("c", "in", [[0, 1], [2, 3]])])
    ]


def test_channels_of_one_layer_with_different_readers_are_different_sites() -> None:
    found = sites(("a", "out", [1, 2, 3, 4]), ("b", "in", [1, 2]), ("c", "in", [3, 4]))
    assert [(name, [part[0] for part in parts]) for name, parts in found] == [("a", ["a", "b"]), ("a#2", ["a", "c"])]


def test_frozen_channels_single_channels_and_those_that_nobody_makes_are_no_sites() -> None:
    assert sites(("a", "out", [0, 0]), ("b", "in", [0, 0])) == []
    assert sites(("a", "out", [1]), ("b", "in", [1])) == []
    assert sites(("b", "in", [1, 2]), ("c", "along", [1, 2])) == []
    assert sites() == []


def test_a_site_knows_its_makers_readers_and_how_many_channels_are_left() -> None:
    axes = [Axis("a", "out", torch.tensor([1, 2, 3])), Axis("b", "out", torch.tensor([1, 2, 3]))]
    (site,) = collect_sites([*axes, Axis("c", "in", torch.tensor([3, 2, 1]))], torch.arange(9))
    assert (site.producers, site.consumers, site.channels, site.original) == (["a", "b"], ["c"], 3, 3)
    site.alive = site.alive[1:]
    assert (site.channels, site.original) == (2, 3)
