"""Factors on what only a function reads: the input of ``F.conv2d(x, self.kernel)``, which no module's hook sees."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from rbprune.errors import UnprunableError
from rbprune.graph.cutting.surgery import find_tensor

_READERS = {F.linear: False, F.conv1d: True, F.conv2d: True, F.conv3d: True}
"""Functions that read channels with a weight, and whether these are the second dimension of the input or its last."""

Scale = Callable[[Tensor, bool, bool], Tensor]
"""(input, whether its channels are the second dimension, whether in training) -> the input to be read instead."""


class FunctionInputs:
    """Changes what functions read, told apart by the parameter or buffer that is their weight.

    It acts while the model runs, or any module that holds the weight: so also where activation checkpointing runs
    only a part of the model again.
    """

    def __init__(self, model: nn.Module, scales: dict[str, list[Scale]]) -> None:
        self.model, self.scales = model, scales
        self.handles: list[RemovableHandle] = []
        self._mode = _Intercept(self)
        self._inside = 0
        self._met: set[str] = set()
        for name in _holders(scales):
            module = model.get_submodule(name)
            self.handles.append(module.register_forward_pre_hook(self._enter))
            self.handles.append(module.register_forward_hook(self._leave, always_call=True))

    def _enter(self, module: nn.Module, args: Any) -> None:
        self._inside += 1
        if self._inside == 1:
            self._met = set()
            self._mode.weights = {id(find_tensor(self.model, name)[2]): name for name in self.scales}
            self._mode.__enter__()

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._inside -= 1
        if self._inside == 0:
            self._mode.__exit__(None, None, None)
        missed = [name for name in self.scales if name not in self._met]
        if module is self.model and module.training and output is not None and missed:
            raise UnprunableError(
                f"in this pass no function read its input with {missed[0]!r}, as one did in the trace, so "
                "that nothing can be learnt about its channels; write that layer as nn.Conv2d or nn.Linear, or leave "
                "the site alone by prune.keep or prune.only"
            )

    def read(self, name: str, x: Tensor, second: bool) -> Tensor:
        """The input that a function reads with the weight of this name."""
        self._met.add(name)
        training = self.model.get_submodule(name.rpartition(".")[0]).training
        for scale in self.scales[name]:
            x = scale(x, second, training)
        return x


class _Intercept(TorchFunctionMode):
    """Sees every function of torch that is called, and changes the input of some."""

    def __init__(self, inputs: FunctionInputs) -> None:
        super().__init__()
        self.inputs = inputs
        self.weights: dict[int, str] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _READERS:
            weight = args[1] if len(args) > 1 else kwargs.get("weight")
            name = self.weights.get(id(weight))
            if name is not None and args:
                args = (self.inputs.read(name, args[0], _READERS[func]), *args[1:])
            elif name is not None:
                kwargs["input"] = self.inputs.read(name, kwargs["input"], _READERS[func])
        return func(*args, **kwargs)


def _holders(names: Iterable[str]) -> list[str]:
    """The modules that hold these tensors, from the model itself ("") inwards.

    >>> _holders(["stem.conv.kernel", "scale"])
    ['', 'stem', 'stem.conv']
    """
    found = [""]
    for name in names:
        words = name.split(".")[:-1]
        found += [".".join(words[: n + 1]) for n in range(len(words))]
    return list(dict.fromkeys(found))
