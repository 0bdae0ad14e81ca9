"""What the layers of one network take on one device, by their widths: a table that is measured once and carried about.

``rbprune calibrate`` measures and writes it (``measure/calibrate.py``); here it is read, checked and asked. A forward
pass takes, in microseconds,

    scale * sum over layers of t(inputs, outputs) + per_element * elements + per_uneven * uneven elements
    + per_weight * max(0, weights - cache) + constant

where t is interpolated between the widths that were measured, elements are the values that all layers put out, and
uneven ones those of layers whose width is no multiple of the device's step. The rest (what lies between the layers,
bringing uneven widths into the layout of a library and back, waiting for those weights that do not fit into the
processor's cache, what a call takes) was fitted to the measured latency of the whole network at several widths.

A device computes channels in blocks, so a width is rounded up to the device's step before it is looked up, and a width
that is no multiple of the step takes the measured factor of its remainder, what 31 inputs take beside 32, say, times
what such widths were measured to take beside that in layers of its own shape.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from rbprune.errors import ConfigError
from rbprune.graph.layer_shares import layers_of_branches
from rbprune.utils.files import write_atomic
from rbprune.utils.plain_file import read_if_there
from rbprune.utils.section import Section, first_mistake

if TYPE_CHECKING:
    from rbprune.graph.channel_graph import ChannelGraph

Positive = Field(gt=0)


class DeviceSettings(Section):
    """What a latency was measured on and with."""

    device: str
    processor: str
    backend: Literal["eager", "compile", "onnxruntime"]
    batch: int = Field(ge=1)
    threads: int = Field(ge=1)
    precision: Literal["float32", "bfloat16"] = "float32"
    channels_last: bool = False
    versions: dict[str, str] = {}

    def __str__(self) -> str:
        layout = ", channels-last" if self.channels_last else ""
        many = "thread" if self.threads == 1 else "threads"
        return (
            f"{self.device} ({self.processor}), {self.backend}, batch {self.batch}, {self.threads} {many}, "
            f"{self.precision}{layout}"
        )


class LayerShape(Section):
    """Times of all layers of one shape, with the normalisation and activation that follow them.

    ``us[i][o]`` are microseconds at ``inputs[i]`` and ``outputs[o]`` channels. A depthwise layer has one width only:
    its ``inputs`` are the widest, and do not count.
    """

    kind: str
    """Layers of one kind share the factors of remainders, such as ``Conv2d 3x3``."""
    kernel: list[int]
    positions: int = Field(ge=1)
    """Places at which the layer is applied to one example."""
    inputs: list[int] = Field(min_length=1)
    outputs: list[int] = Field(min_length=1)
    us: list[list[float]]
    depthwise: bool = False
    uneven: float = Field(1.0, gt=0)
    """What widths that are no multiples of the step take beside what the factors of the kind say, at the whole width;
    fitted to pairs of such widths (of a depthwise layer, to widths)."""
    uneven_power: float = Field(0.0, ge=-1, le=1)
    """The power of the share of the whole layer's computation with which that changes."""

    @model_validator(mode="after")
    def _is_a_grid(self) -> Self:
        for widths in (self.inputs, self.outputs):
            if widths != sorted(set(widths)) or widths[0] < 1:
                raise ValueError(f"widths must rise from 1 on; these are {widths}")
        if [len(row) for row in self.us] != [len(self.outputs)] * len(self.inputs):
            raise ValueError(f"us must be {len(self.inputs)} rows of {len(self.outputs)} times")
        if not all(0 < value < math.inf for row in self.us for value in row):
            raise ValueError("us must be positive microseconds")
        return self


class Remainders(Section):
    """For every remainder of a width by the step, what it takes beside the next multiple of the step."""

    inputs: list[float] = Field(min_length=1)
    outputs: list[float] = Field(min_length=1)


class Features(NamedTuple):
    """What the latency of a network follows from."""

    layers: float
    """The sum of the times of its layers, each measured by itself."""
    elements: float
    uneven: float
    weights: float


class Rest(Section):
    """What the sum over layers does not explain; see the module."""

    scale: float = Field(1.0, gt=0)
    per_element: float = 0.0
    per_uneven: float = 0.0
    per_weight: float = 0.0
    cache: float = 0.0
    constant: float = 0.0

    def microseconds(self, of: Features) -> float:
        """The latency of a network."""
        waiting = self.per_weight * max(0.0, of.weights - self.cache)
        between = self.per_element * of.elements + self.per_uneven * of.uneven
        return self.scale * of.layers + between + waiting + self.constant


class NetworkCheck(Section):
    """A whole network of other widths, measured and foretold, in microseconds."""

    name: str
    fitted: bool
    """Whether the remainder was fitted to it; else it tells how good the table is."""
    measured: float = Positive
    predicted: float


class LatencyTable(Section):
    """What the layers of one network take on one device."""

    version: Literal[1] = 1
    network: str
    input: list[int]
    on: DeviceSettings
    step: int = Field(ge=1)
    """Widths are best multiples of so many channels: to round a width up to one takes no longer."""
    layers: dict[str, str]
    """The shape of each layer, by name."""
    shapes: dict[str, LayerShape]
    remainders: dict[str, Remainders] = {}
    rest: Rest = Rest()
    checks: list[NetworkCheck] = []

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        missing = sorted({shape for shape in self.layers.values() if shape not in self.shapes})
        if missing:
            raise ValueError(f"layers have shapes that are not in the table: {', '.join(missing)}")
        for kind, found in self.remainders.items():
            if {len(found.inputs), len(found.outputs)} != {self.step}:
                raise ValueError(f"remainders of {kind} must be {self.step} factors for inputs and outputs")
        return self

    def save(self, path: Path) -> Path:
        """Write it as JSON, whole or not at all."""
        return write_atomic(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> LatencyTable:
        """Read it back, checked."""
        try:
            found = read_if_there(path, ConfigError)
            if found is None:
                raise ConfigError(
                    f"there is no table of latencies at {str(path)!r}: write it with `rbprune calibrate MODEL --out "
                    f"{path}`"
                )
            return cls.model_validate_json(found)
        except ValidationError as error:
            raise ConfigError(
                f"{str(path)!r} is no table of latencies that can be read ({first_mistake(error)}); write it anew "
                f"with `rbprune calibrate MODEL --out {path}`"
            ) from error

    def check(self, graph: ChannelGraph, where: str = "the table of latencies") -> None:
        """Refuse a network that the table was not measured for; it may be narrower, not another one."""
        here = {layer.name: layer for layer in graph.layers()}
        for name, shape in ((name, self.shapes[key]) for name, key in self.layers.items()):
            layer = here.get(name)
            there = f"{shape.kind} with up to {shape.inputs[-1]} inputs and {shape.outputs[-1]} outputs"
            wrong = None
            if layer is None:
                wrong = "is not in this one"
            elif layer.macs != layer.params * shape.positions:
                wrong = (
                    f"is applied at {layer.macs // max(1, layer.params)} places of an example, not {shape.positions}"
                )
            else:
                inputs, outputs = layer_widths(graph, {})[name]
                if outputs > shape.outputs[-1] or (not shape.depthwise and inputs > shape.inputs[-1]):
                    wrong = f"has {inputs} inputs and {outputs} outputs here"
            if wrong is not None:
                size = "x".join(map(str, self.input))
                raise ConfigError(
                    f"{where} was measured for another network, {self.network!r} at {size}: its layer {name!r} "
                    f"({there}) {wrong}; write one for this network with `rbprune calibrate MODEL --out FILE`"
                )

    def microseconds(self, graph: ChannelGraph, counts: Mapping[str, int]) -> float:
        """What a forward pass takes without so many channels of each site, whichever they are."""
        return max(self.rest.microseconds(self.features(graph, counts)), 1e-3)

    def features(self, graph: ChannelGraph, counts: Mapping[str, int]) -> Features:
        """What the latency follows from, without so many channels of each site."""
        widths, layers, elements, uneven, weights = layer_widths(graph, counts), 0.0, 0.0, 0.0, 0.0
        for name in (name for name in widths if name in self.layers):
            shape = self.shapes[self.layers[name]]
            inputs, outputs = widths[name]
            layers += self.of_layer(name, inputs, outputs)
            elements += outputs * shape.positions
            uneven += outputs * shape.positions if outputs % self.step and outputs < shape.outputs[-1] else 0
            weights += outputs * math.prod(shape.kernel) * (1 if shape.depthwise else inputs)
        return Features(layers, elements, uneven, weights)

    def of_layer(self, name: str, inputs: int, outputs: int) -> float:
        """Microseconds of one layer of so many channels, with what follows it."""
        shape = self.shapes[self.layers[name]]
        factors = self.remainders.get(shape.kind)
        row, factor_in = self._look_up(shape.inputs, inputs, None if factors is None else factors.inputs)
        column, factor_out = self._look_up(shape.outputs, outputs, None if factors is None else factors.outputs)
        uneven = [self._is_uneven(shape.inputs, inputs), self._is_uneven(shape.outputs, outputs)]
        if shape.depthwise:
            row, factor_in, uneven = 0.0, 1.0, uneven[1:]
        low, high = math.floor(row), math.ceil(row)
        upper, lower = (_between(shape.us[index], column) for index in (high, low))
        share = outputs / shape.outputs[-1] * (1 if shape.depthwise else inputs / shape.inputs[-1])
        own = (shape.uneven * share**shape.uneven_power) ** (sum(uneven) / len(uneven))
        return (lower + (upper - lower) * (row - low)) * factor_in * factor_out * own

    def _is_uneven(self, grid: list[int], width: int) -> bool:
        return width < grid[-1] and width % self.step > 0

    def _look_up(self, grid: list[int], width: int, factors: list[float] | None) -> tuple[float, float]:
        """Where a width, rounded up to the step, lies on a grid, and the factor of what was left of it."""
        if width >= grid[-1]:
            return len(grid) - 1, 1.0
        rounded = min(math.ceil(width / self.step) * self.step, grid[-1])
        factor = 1.0 if factors is None else factors[width % self.step]
        if rounded <= grid[0]:
            return 0.0, factor
        right = bisect.bisect_left(grid, rounded)
        return right - 1 + (rounded - grid[right - 1]) / (grid[right] - grid[right - 1]), factor


def _between(values: list[float], place: float) -> float:
    low, high = math.floor(place), math.ceil(place)
    return values[low] + (values[high] - values[low]) * (place - low)


def layer_widths(graph: ChannelGraph, counts: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of each layer without so many channels of each site; of a depthwise layer both are the same.

    The layers of a branch that would go are not there.

    >>> import torch, rbprune
    >>> graph = rbprune.trace(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 3)), torch.zeros(1, 2))
    >>> layer_widths(graph, {"0": 1})
    {'0': (2, 3), '1': (3, 3)}
    """
    removed: dict[tuple[str, str], int] = {}
    for name, count in counts.items():
        for part in graph[name].parts:
            key = (part.owner, part.role)
            removed[key] = removed.get(key, 0) + count * part.positions.shape[1]
    found, absent = {}, set(layers_of_branches(graph, counts))
    for layer in (layer for layer in graph.layers() if layer.name not in absent):
        both = graph.axis_width(layer.name, "along")
        made, read = graph.axis_width(layer.name, "out"), graph.axis_width(layer.name, "in")
        if made is not None and read is not None:
            gone = removed.get((layer.name, "in"), 0), removed.get((layer.name, "out"), 0)
            found[layer.name] = read - gone[0], made - gone[1]
        elif both is not None:
            found[layer.name] = (both - removed.get((layer.name, "along"), 0),) * 2
    return found
