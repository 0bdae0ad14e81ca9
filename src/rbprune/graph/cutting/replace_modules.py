"""What stands in place of modules when a branch is gone: plain modules of torch, which load without rbprune."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping

import torch
from torch import nn

from rbprune.errors import ModelError, nearest

ZEROS = "torch.zeros_like"
"""The function of a module that gives zeros of its input's shape."""
FUNCTIONS: dict[str, Callable[[], nn.Module]] = {
    ZEROS: lambda: nn.Threshold(math.inf, 0.0),  # nothing is above the threshold
    "torch.relu": nn.ReLU,
    "torch.relu6": nn.ReLU6,
    "torch.silu": nn.SiLU,
    "torch.gelu": nn.GELU,
    "torch.hardswish": nn.Hardswish,
    "torch.tanh": nn.Tanh,
    "torch.sigmoid": nn.Sigmoid,
}
"""The functions that may be left of a block, each as a module of torch."""


def has_module(model: nn.Module, path: str) -> bool:
    """Whether there is a module of that name.

    >>> has_module(nn.Sequential(nn.ReLU()), "0"), has_module(nn.Sequential(nn.ReLU()), "0.conv")
    (True, False)
    """
    try:
        model.get_submodule(path)
    except AttributeError:
        return False
    return True


def check_steps(path: str, steps: list[str]) -> None:
    """Refuse a function that is not known here."""
    unknown = [step for step in steps if "." in step and step not in FUNCTIONS]
    if unknown:
        raise ModelError(
            f"the plan leaves {unknown[0]!r} in place of {path!r}, which is unknown here"
            f"{nearest(unknown[0], FUNCTIONS)}; upgrade rbprune"
        )


def replace_modules(
    model: nn.Module, replacements: Mapping[str, list[str]], optimizer: torch.optim.Optimizer | None = None
) -> Callable[[], None]:
    """Put what is left in place of modules; parameters that are gone leave the optimizer. Returns what undoes it, but
    for the optimizer.

    >>> net = nn.Sequential(nn.Conv2d(3, 3, 1), nn.ReLU())
    >>> undo = replace_modules(net, {"0": []})
    >>> [type(module).__name__ for module in net]
    ['Identity', 'ReLU']
    """
    before = dict(model.named_parameters(remove_duplicate=False))
    undoing: list[Callable[[], None]] = []
    for path, steps in replacements.items():
        check_steps(path, steps)
        if not has_module(model, path):
            continue  # it went with a branch around it
        parent, _, leaf = path.rpartition(".")
        holder, old = model.get_submodule(parent), model.get_submodule(path)
        new = _stand_in(old, path, steps, undoing)
        new.training = old.training
        undoing.append(_putting(holder, leaf, old))
        holder._modules[leaf] = new
    left = {id(parameter) for parameter in model.parameters()}
    if optimizer is not None:
        _leave_optimizer(optimizer, [p for p in before.values() if id(p) not in left])

    def undo() -> None:
        for step in reversed(undoing):
            step()

    return undo


def _stand_in(old: nn.Module, path: str, steps: list[str], undoing: list[Callable[[], None]]) -> nn.Module:
    missing = [step for step in steps if step not in FUNCTIONS and step not in old._modules]
    if missing:
        raise ModelError(f"{path!r} has no child {missing[0]!r}, which is to be left of it; build the same network")
    if not steps:
        return nn.Identity()
    if len(steps) == 1 and steps[0] in FUNCTIONS:
        return FUNCTIONS[steps[0]]()
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    for step in steps:
        module = FUNCTIONS[step]() if step in FUNCTIONS else old.get_submodule(step)
        if getattr(module, "inplace", False) is True:  # it would write into the shortcut, which others read
            undoing.append(_setting(module, "inplace", True))
            setattr(module, "inplace", False)  # noqa: B010
        modules[step.replace(".", "_")] = module
    return nn.Sequential(modules)


def _putting(holder: nn.Module, leaf: str, module: nn.Module) -> Callable[[], None]:
    def put() -> None:
        holder._modules[leaf] = module

    return put


def _setting(module: nn.Module, attribute: str, value: bool) -> Callable[[], None]:
    return lambda: setattr(module, attribute, value)


def _leave_optimizer(optimizer: torch.optim.Optimizer, gone: list[nn.Parameter]) -> None:
    """The optimizer forgets these parameters."""
    ids = {id(parameter) for parameter in gone}
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in ids]
    for parameter in gone:
        optimizer.state.pop(parameter, None)
