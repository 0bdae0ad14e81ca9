"""The layers of a network as small modules of any width: a convolution or linear layer with what follows it."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd

from rbprune.graph import ChannelGraph
from rbprune.utils.modes import evaluating

_POOLS = (_AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd)


@dataclass
class MeasuredLayer:
    """A layer, the shape of what it read, and what follows it before the next layer."""

    name: str
    module: nn.Module
    shape: tuple[int, ...]
    positions: int
    followers: list[nn.Module] = field(default_factory=list)
    calls: int = 1
    """How often the network calls it in a forward pass."""

    @property
    def groups(self) -> int:
        """Groups of a convolution; 1 for a linear layer."""
        return self.module.groups if isinstance(self.module, _ConvNd) else 1

    @property
    def inputs(self) -> int:
        """Channels that it reads."""
        return self.module.in_channels if isinstance(self.module, _ConvNd) else int(self.module.in_features)  # type: ignore[arg-type]

    @property
    def outputs(self) -> int:
        """Channels that it makes."""
        return self.module.out_channels if isinstance(self.module, _ConvNd) else int(self.module.out_features)  # type: ignore[arg-type]

    @property
    def depthwise(self) -> bool:
        """Whether every channel has filters of its own, so that there is one width only."""
        return self.groups > 1 and self.groups == self.inputs

    @property
    def kernel(self) -> list[int]:
        """The sizes of its kernel; none for a linear layer."""
        return list(self.module.kernel_size) if isinstance(self.module, _ConvNd) else []

    @property
    def kind(self) -> str:
        """Layers of one kind are computed by the same code of a library; of depthwise ones, at one size too."""
        name = next(base for base in type(self.module).__mro__ if base.__module__.startswith("torch.nn")).__name__
        size = "x".join(map(str, self.kernel))
        if self.depthwise:
            return f"{name} {size} depthwise{self._stride} at {'x'.join(map(str, self.shape[2:]))}"
        return f"{name} {size}{' grouped' if self.groups > 1 else ''}".strip()

    @property
    def _stride(self) -> str:
        return f" stride {max(self.module.stride)}" if isinstance(self.module, _ConvNd) else ""

    @property
    def key(self) -> str:
        """Layers with the same key take the same time."""
        extra = [type(follower).__name__ for follower in self.followers]
        bias = "" if self.module.bias is None else " bias"
        size = "x".join(map(str, self.shape[2:])) or "vector"
        groups = f" groups {self.groups}" if self.groups > 1 else ""
        text = f"{self.kind} {self.inputs}->{self.outputs}{groups}{self._stride}{bias} at {size}"
        return " + ".join([text, *extra]) + (f", {self.calls} times" if self.calls > 1 else "")

    def at(self, inputs: int, outputs: int) -> tuple[nn.Module, Tensor]:
        """The same layer with other widths and what follows it, untrained, and an input for it.

        Of a depthwise layer the outputs count.
        """
        if self.depthwise:
            each = self.outputs // self.inputs
            inputs = max(1, outputs // each)
            outputs = inputs * each
        layer = self._resized(inputs, outputs)
        parts = [layer, *(_resized_follower(follower, outputs) for follower in self.followers)]
        shape = list(self.shape)
        shape[1 if isinstance(self.module, _ConvNd) else -1] = inputs
        x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        return nn.Sequential(*parts).eval().requires_grad_(False), x

    def _resized(self, inputs: int, outputs: int) -> nn.Module:
        bias = self.module.bias is not None
        if not isinstance(self.module, _ConvNd):
            return nn.Linear(inputs, outputs, bias)
        own = self.module
        plain = next(base for base in type(own).__mro__ if base.__module__.startswith("torch.nn"))
        groups = inputs if self.depthwise else own.groups
        options = {"stride": own.stride, "padding": own.padding, "dilation": own.dilation, "groups": groups}
        if isinstance(own, _ConvTransposeNd):
            options["output_padding"] = own.output_padding
        return plain(inputs, outputs, own.kernel_size, bias=bias, **options)  # type: ignore[call-arg, arg-type]

    def widths(self, step: int, points: int) -> tuple[list[int], list[int]]:
        """A grid of input and output widths; of a depthwise layer the widest inputs, and outputs."""
        unit = 1 if self.depthwise else self.groups
        inputs, outputs = (grid(width, math.lcm(step, unit), points) for width in (self.inputs, self.outputs))
        return ([self.inputs] if self.depthwise else inputs), outputs


def grid(width: int, step: int, points: int) -> list[int]:
    """Widths to measure: multiples of the step, close together where they are small, and the whole width.

    >>> grid(64, 8, 6), grid(3, 8, 6), grid(512, 16, 6)
    ([8, 16, 32, 48, 64], [3], [16, 64, 128, 256, 384, 512])
    """
    shares = [1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4][-max(1, points - 2) :]
    if points <= 6:
        shares = [1 / 8, 1 / 4, 1 / 2, 3 / 4][-max(1, points - 2) :]
    found = {step, *(max(step, round(share * width / step) * step) for share in shares)}
    return sorted({each for each in found if each < width} | {width})


def find_layers(graph: ChannelGraph, x: Tensor) -> list[MeasuredLayer]:
    """The layers of the network that are modules, in the order in which they are called; each once.

    What follows a layer is what is called after it, before the next layer, on what it put out: normalisation,
    activations and pooling. Sums, and whatever is no module, belong to no layer.
    """
    known = {layer.name: layer.macs // max(1, layer.params) for layer in graph.layers()}
    calls: list[tuple[str, nn.Module, tuple[int, ...], tuple[int, ...]]] = []
    hooks = []
    for name, module in graph.model.named_modules():
        if not list(module.children()):

            def note(
                module: nn.Module, args: Sequence[object], kwargs: dict[str, object], out: object, name: str = name
            ) -> None:
                given = [*args, *kwargs.values()]  # module(x), or module(input=x)
                if len(given) == 1 and isinstance(given[0], Tensor) and isinstance(out, Tensor):
                    calls.append((name, module, tuple(given[0].shape), tuple(out.shape)))

            hooks.append(module.register_forward_hook(note, with_kwargs=True))
    try:
        with evaluating(graph.model), torch.no_grad():
            graph.model(x)
    finally:
        for hook in hooks:
            hook.remove()
    found: dict[str, MeasuredLayer] = {}
    last: tuple[MeasuredLayer, tuple[int, ...]] | None = None
    for name, module, before, after in calls:
        if isinstance(module, _ConvNd | nn.Linear):
            last = None
            if name in found:
                found[name].calls += 1
            elif name in known:
                found[name] = MeasuredLayer(name, module, before, known[name])
                last = found[name], after
        elif last is not None:
            layer, shape = last
            last = None
            if before == shape and (isinstance(module, (_BatchNorm, *_POOLS)) or _is_activation(module)):
                layer.followers.append(module)
                last = layer, after
    return list(found.values())


def _is_activation(module: nn.Module) -> bool:
    return type(module).__module__ == "torch.nn.modules.activation" and not list(module.parameters())


def _resized_follower(module: nn.Module, width: int) -> nn.Module:
    if isinstance(module, _BatchNorm):
        plain = next(base for base in type(module).__mro__ if base.__module__.startswith("torch.nn"))
        return plain(width)
    return copy.deepcopy(module)
