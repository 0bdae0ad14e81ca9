"""Run a model's own code and leave the model, and the random numbers, exactly as they were."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_RANDOM_STATES = RLock()
"""Held while the random states of the process are borrowed: two threads that trace do so one after the other."""

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def belongs_to_forward(hook: Any) -> bool:
    """Whether a library has put a hook there as a part of its own forward, in whose place nothing else stands.

    Networks of transformers collect their hidden states by hooks that they register in their first call.
    """
    return getattr(hook, "__module__", None) == "transformers.utils.output_capturing"


@contextmanager
def preserve_model(model: nn.Module, *, training: bool) -> Iterator[Callable[[bool], None]]:
    """Inside: no gradients, no hooks of the user, every module in that mode. Afterwards, also after errors, everything
    is as before.

    What it gives puts attributes back meanwhile, for another run, in training or not; where nothing that computes with
    buffers has run.

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
        attributes = [_Attributes(vars(module)) for module in modules]
        values = _Values(_loose_tensors(modules, attributes))
        parameters = {id(p): p for module in modules for p in module._parameters.values() if p is not None}
        flags = [(p, p.requires_grad) for p in parameters.values() if p.is_leaf]
        devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        state, numbers = random.getstate(), np.random.get_state()
        scripted = [(m, m.training) for m in modules if isinstance(m, torch.jit.ScriptModule)]

        def put_back(training: bool) -> None:
            for each in attributes:
                each.put_back()
                each.prepare(training)

        try:
            for each in attributes:
                each.prepare(training)
            for module, _ in scripted:
                module.training = training
            with torch.random.fork_rng(devices=devices), torch.no_grad():
                yield put_back
        finally:
            random.setstate(state)
            np.random.set_state(numbers)
            for each in attributes:
                each.put_back()
            for module, mode in scripted:
                module.training = mode  # it does not lie among the attributes of a scripted module
            for parameter, flag in flags:
                parameter.requires_grad = flag
            values.put_back()


class _Attributes:
    """The attributes of one module as they are, and what its dicts, lists and sets hold."""

    def __init__(self, now: dict[str, Any]) -> None:
        self.now, self.before = now, dict(now)
        self.filled: list[tuple[Any, Any]] = []
        self.empty: list[Any] = []
        self.tensors: dict[str, Tensor] = {}
        for name, value in [each for each in self.before.items() if type(each[1]) not in _PLAIN]:
            if isinstance(value, _CONTAINERS):
                if value:
                    self.filled.append((value, value.copy()))
                else:
                    self.empty.append(value)
            elif isinstance(value, Tensor):
                self.tensors[name] = value

    def prepare(self, training: bool) -> None:
        """Take away hooks and gradients, and set the mode."""
        if "training" in self.now:
            self.now["training"] = training
        for name in HOOKS:
            if hooks := self.now.get(name):
                self.now[name] = type(hooks)((key, hook) for key, hook in hooks.items() if belongs_to_forward(hook))
        for name, tensor in self.tensors.items():
            self.now[name] = tensor.detach()

    def put_back(self) -> None:
        """Let everything be what it was."""
        self.now.clear()
        self.now.update(self.before)
        for container, content in self.filled:
            _refill(container, content)
        for container in filter(None, self.empty):
            container.clear()


class _Values:
    """What tensors hold. Those of one kind are saved and compared together, since there are many small ones."""

    def __init__(self, tensors: list[Tensor]) -> None:
        kinds: dict[Any, list[Tensor]] = defaultdict(list)
        for tensor in tensors:
            alone = tensor.is_meta or tensor.layout is not torch.strided or tensor.is_quantized
            kinds[id(tensor) if alone else (tensor.dtype, tensor.device)].append(tensor)
        self.saved = [(held, [tensor._version for tensor in held], self._all(held)) for held in kinds.values()]

    def put_back(self) -> None:
        """Let the tensors hold what they held, where they do not: batch normalisation writes its statistics without a
        new version."""
        for held, versions, values in self.saved:
            is_same = [tensor._version for tensor in held] == versions
            if is_same and (held[0].is_meta or torch.equal(self._all(held), values)):
                continue
            parts = [values] if len(held) == 1 else values.split([tensor.numel() for tensor in held])
            for tensor, part in zip(held, parts, strict=True):
                tensor.detach().copy_(part.view_as(tensor))

    @staticmethod
    def _all(held: list[Tensor]) -> Tensor:
        return held[0].detach().clone() if len(held) == 1 else torch.cat([tensor.detach().flatten() for tensor in held])


_PLAIN = {bool, int, float, str, tuple, type(None)}
_CONTAINERS = (dict, list, set)


def seed_all() -> None:
    """Let everything that throws dice throw the same ones each time; for use inside of ``preserve_model``."""
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():  # else torch would keep this seed in mind for when it is
        torch.cuda.manual_seed_all(0)


def _refill(container: Any, content: Any) -> None:
    if isinstance(container, list):
        container[:] = content
    else:
        container.clear()
        container.update(content)


def _loose_tensors(modules: list[nn.Module], attributes: list[_Attributes]) -> list[Tensor]:
    """Buffers and plain tensor attributes."""
    values = [value for module in modules for value in module._buffers.values()]
    values += [value for own in attributes for value in own.tensors.values()]
    return list({id(t): t for t in values if isinstance(t, Tensor) and not t.is_inference()}.values())
