"""Run a model's own code and leave the model, and the random numbers, exactly as they were."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_RANDOM_STATES = RLock()
"""Held while the random states of the process are borrowed: two threads that trace do so one after the other."""

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


@contextmanager
def preserve_model(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Inside: no gradients, no hooks, every module in that mode. Afterwards everything is as before, also after errors.

    One thread at a time is inside: random states, and what torch.fx changes while it traces, are the whole process's.

    Attributes, lists and dicts of modules, buffers, flags and random states come back; what a parameter holds is not
    saved, since nothing that runs inside computes with real parameters.

    >>> model = nn.Sequential(nn.Dropout())
    >>> with preserve_model(model, training=False):
    ...     model[0].training, model.extra = False, 1
    >>> model[0].training, hasattr(model, "extra")
    (True, False)
    """
    with _RANDOM_STATES:
        modules = list(model.modules())
        attributes = [(vars(module), dict(vars(module)), _containers(vars(module))) for module in modules]
        tensors = [(t, t._version, t.detach().clone()) for t in _loose_tensors(modules)]
        flags = [(p, p.requires_grad) for p in model.parameters() if p.is_leaf]
        devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
        state, numbers = random.getstate(), np.random.get_state()
        scripted = [(m, m.training) for m in modules if isinstance(m, torch.jit.ScriptModule)]
        try:
            for module in modules:
                module.training = training
                vars(module).update({name: type(vars(module)[name])() for name in HOOKS if name in vars(module)})
                vars(module).update({k: v.detach() for k, v in vars(module).items() if isinstance(v, Tensor)})
            with torch.random.fork_rng(devices=devices), torch.no_grad():
                yield
        finally:
            random.setstate(state)
            np.random.set_state(numbers)
            for now, before, containers in attributes:
                now.clear()
                now.update(before)
                for container, content in containers:
                    _refill(container, content)
            for module, mode in scripted:
                module.training = mode  # it does not lie among the attributes of a scripted module
            for parameter, flag in flags:
                parameter.requires_grad = flag
            for tensor, version, value in tensors:
                # batch normalisation writes its statistics without a new version
                if tensor._version != version or not (tensor.is_meta or torch.equal(tensor, value)):
                    tensor.detach().copy_(value)


def seed_all() -> None:
    """Let everything that throws dice throw the same ones each time; for use inside of ``preserve_model``."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def _containers(attributes: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(value, value.copy()) for value in attributes.values() if isinstance(value, dict | list | set)]


def _refill(container: Any, content: Any) -> None:
    if isinstance(container, list):
        container[:] = content
    else:
        container.clear()
        container.update(content)


def _loose_tensors(modules: list[nn.Module]) -> list[Tensor]:
    """Buffers and plain tensor attributes."""
    values = [v for m in modules for v in (*m._buffers.values(), *vars(m).values())]
    return list({id(t): t for t in values if isinstance(t, Tensor) and not t.is_inference()}.values())
