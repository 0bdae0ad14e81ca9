"""What a batch of inputs means to a model."""

from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rbprune.utils.inputs import Arguments, arguments, call


class Two(nn.Module):
    """Tells which argument came where."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return 10 * left + right


@pytest.mark.parametrize(
    "inputs",
    [
        (torch.tensor(1), torch.tensor(2)),
        [torch.tensor(1), torch.tensor(2)],
        {"right": torch.tensor(2), "left": torch.tensor(1)},
        OrderedDict(right=torch.tensor(2), left=torch.tensor(1)),
        MappingProxyType({"right": torch.tensor(2), "left": torch.tensor(1)}),
        Arguments((torch.tensor(1),), {"right": torch.tensor(2)}),
    ],
    ids=["tuple", "list", "dict", "ordered dict", "any mapping", "arguments"],
)
def test_several_arguments_in_order_or_by_name(inputs: Any) -> None:
    assert int(call(Two(), inputs)) == 12


def test_a_tensor_is_one_argument_however_many_rows_it_has() -> None:
    rows = torch.randn(2, 3)
    assert arguments(rows).args[0] is rows
    assert torch.equal(call(nn.Identity(), rows), rows)


def test_arguments_stay_what_they_are() -> None:
    found = arguments((1, 2))
    assert arguments(found) is found, "although it is itself a tuple of two"


def test_a_mapping_is_copied_so_that_a_model_cannot_change_the_batch() -> None:
    batch = {"x": 1}
    arguments(batch).kwargs["x"] = 2
    assert batch == {"x": 1}
