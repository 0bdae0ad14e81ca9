"""What stands in place of modules."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rbprune.errors import ModelError
from rbprune.graph.cutting.replace_modules import FUNCTIONS, ZEROS, has_module, replace_modules


def net() -> nn.Sequential:
    inner = nn.Sequential()
    inner.conv, inner.act = nn.Conv2d(2, 2, 1), nn.ReLU(inplace=True)
    return nn.Sequential(nn.Conv2d(2, 2, 1), inner)


def test_steps_become_modules_and_can_be_undone() -> None:
    model, x = net().eval(), torch.randn(2, 2, 3, 3)
    wanted, names = model(x), list(model.state_dict())
    undo = replace_modules(model, {"0": [], "1": ["act", "torch.tanh"]})
    assert torch.equal(model(x), torch.tanh(torch.relu(x)))
    assert model[1].act.inplace is False, "else it would write into what it is given"
    assert not model[1].training
    undo()
    assert torch.equal(model(x), wanted)
    assert model[1].act.inplace is True
    assert list(model.state_dict()) == names


def test_zeros_are_zeros_whatever_comes() -> None:
    x = torch.tensor([1.0, -2.0, torch.inf, -torch.inf], requires_grad=True)
    zeros = FUNCTIONS[ZEROS]()(x)
    zeros += 1  # in place, as residual sums are
    assert zeros.tolist() == [1.0] * 4
    assert FUNCTIONS[ZEROS]()(x.detach().bfloat16()).dtype == torch.bfloat16


def test_what_lies_in_a_replaced_module_is_left_out_and_the_unknown_refused() -> None:
    model = net()
    replace_modules(model, {"1": [], "1.conv": []})
    assert not has_module(model, "1.conv")
    with pytest.raises(ModelError, match=r"leaves 'torch.rel' in place of '0', which is unknown here; did you mean"):
        replace_modules(model, {"0": ["torch.rel"]})
    with pytest.raises(ModelError, match="'0' has no child 'act'"):
        replace_modules(model, {"0": ["act"]})


def test_parameters_that_are_gone_leave_the_optimizer_and_shared_ones_stay() -> None:
    model = net()
    model[1].conv.weight = model[0].weight
    optimizer = torch.optim.SGD([{"params": model[1].parameters()}, {"params": [model[0].bias]}], lr=0.1, momentum=0.9)
    model(torch.randn(2, 2, 3, 3)).sum().backward()
    optimizer.step()
    replace_modules(model, {"1": []}, optimizer)
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]
    assert optimizer.param_groups[0]["params"][0] is model[0].weight
    assert set(optimizer.state) == {model[0].weight, model[0].bias}
