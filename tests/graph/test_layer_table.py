"""The table of layers: what a cut sets in a module's own numbers."""

from __future__ import annotations

import pytest
from torch import nn

from rbprune.graph.layer_table import set_width, torch_kind, widths_of
from rbprune.graph.sites import Role

CUTS: dict[str, tuple[nn.Module, Role, int, dict[str, int]]] = {
    "filters": (nn.Conv2d(4, 8, 3), "out", 5, {"in_channels": 4, "out_channels": 5, "groups": 1}),
    "inputs": (nn.Conv2d(4, 8, 3), "in", 3, {"in_channels": 3, "out_channels": 8, "groups": 1}),
    "columns of groups": (nn.Conv2d(8, 8, 3, groups=2), "columns", 3, {"in_channels": 8, "groups": 2}),
    "inputs of groups": (nn.Conv2d(8, 8, 3, groups=2), "in", 6, {"in_channels": 6, "groups": 2}),
    "depthwise": (nn.Conv2d(6, 6, 3, groups=6), "along", 4, {"in_channels": 4, "out_channels": 4, "groups": 4}),
    "depth multiplier": (nn.Conv2d(4, 8, 3, groups=4), "along", 6, {"in_channels": 3, "out_channels": 6, "groups": 3}),
    "transposed": (nn.ConvTranspose2d(4, 8, 3), "out", 5, {"in_channels": 4, "out_channels": 5}),
    "linear outputs": (nn.Linear(4, 8), "out", 5, {"in_features": 4, "out_features": 5}),
    "linear inputs": (nn.Linear(4, 8), "in", 3, {"in_features": 3, "out_features": 8}),
    "batch norm": (nn.BatchNorm2d(6), "along", 4, {"num_features": 4}),
    "instance norm": (nn.InstanceNorm1d(6), "along", 4, {"num_features": 4}),
    "group norm": (nn.GroupNorm(4, 8), "along", 6, {"num_channels": 6, "num_groups": 3}),
    "prelu": (nn.PReLU(6), "along", 4, {"num_parameters": 4}),
    "no layer": (nn.ReLU(), "along", 4, {}),
}


@pytest.mark.parametrize("name", CUTS)
def test_a_cut_sets_the_widths(name: str) -> None:
    module, role, width, wanted = CUTS[name]
    set_width(module, role, width)
    assert {attribute: getattr(module, attribute) for attribute in wanted} == wanted


def test_a_width_that_is_set_twice_is_set_once() -> None:
    module = nn.GroupNorm(4, 8)
    set_width(module, "along", 6)
    set_width(module, "along", 6)
    assert (module.num_channels, module.num_groups) == (6, 3)


def test_numbers_of_groups_are_no_widths() -> None:
    assert set(widths_of(nn.Conv2d(1, 1, 1))) == {"out_channels", "in_channels"}
    assert set(widths_of(nn.GroupNorm(1, 2))) == {"num_channels"}


def test_a_subclass_of_a_layer_is_of_its_kind() -> None:
    class Same(nn.Conv2d):
        pass

    assert torch_kind(Same(1, 1, 1)) is torch_kind(nn.ConvTranspose3d(1, 1, 1)) is not None
    assert torch_kind(nn.Sequential()) is None
