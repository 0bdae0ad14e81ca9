"""The tables of rules: every name in them exists, and every layer of torch in them is found there."""

from __future__ import annotations

import inspect
import operator
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rbprune.graph import markers
from rbprune.graph.layer_table import LayerKind, timm_kind, torch_kind
from rbprune.graph.rules.tables import BY_NAME, LAYERS
from rbprune.graph.sites import Role

HOMES = (torch, F, torch.Tensor, operator, torch.special, torch.linalg, markers, __builtins__)
ELSEWHERE = {"stochastic_depth", "drop_path", "_pad", "fractional_max_pool1d"}
"""Functions of torchvision and timm and of other versions of torch; the last is not there in one dimension."""


def test_every_name_in_the_table_of_functions_is_a_function_somewhere() -> None:
    known = {name for home in HOMES for name in (home if isinstance(home, dict) else dir(home))}
    assert {name for name in BY_NAME if name not in known} <= ELSEWHERE


@pytest.mark.parametrize("kind", LAYERS, ids=lambda kind: getattr(kind.rule, "__name__", ""))
def test_every_layer_has_the_widths_that_are_named_for_roles_that_exist(kind: LayerKind) -> None:
    assert kind.types or kind.timm
    counts = {**kind.widths, **kind.group_counts}
    assert {role for roles in counts.values() for role in roles} <= set(get_args(Role))
    for each in kind.types:
        assert set(counts) <= set(inspect.signature(each).parameters), each


def test_a_layer_of_timm_is_known_by_name_and_home_only() -> None:
    class BlurPool2d(nn.Module):
        pass

    assert timm_kind(BlurPool2d()) is None
    BlurPool2d.__module__ = "timm.layers.blur_pool"
    found = timm_kind(BlurPool2d())
    assert found is not None
    assert found.widths == {"channels": ("along",)}
    assert torch_kind(BlurPool2d()) is None
