"""What a forward does in one step: an operation, or the call of a module."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from rbprune.graph.node_info import LayersInside


@dataclass(slots=True, unsafe_hash=True)  # nobody changes it, and a frozen one takes twice as long to make
class Made:
    """What the event of that number made."""

    number: int


@dataclass(slots=True)
class Event:
    """One operation, in the words of fx: ``Made`` stands in its arguments where tensors were."""

    op: str
    target: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ("",)
    """The modules that run while it does, by name, the outermost ("") first."""
    line: str | None = None
    result: Any = None
    layers_inside: LayersInside = field(default_factory=list)

    def does_the_same(self, other: Event) -> bool:
        """Whether it is the same operation on the same; whether dropout is told that it trains makes no other one."""
        return self is other or (
            (self.op, self.target, self.args, self.modules) == (other.op, other.target, other.args, other.modules)
            and {**self.kwargs, "training": None} == {**other.kwargs, "training": None}
            and _shapes(self.result) == _shapes(other.result)
        )


@dataclass(slots=True)
class CalledModule:
    """A module that was called: what it was given, where that is a single tensor, and what it returned, if one."""

    path: str
    source: Made | None
    output: Made | None


def _shapes(value: Any) -> Any:
    several = [_shapes(each) for each in value] if isinstance(value, tuple | list) else None
    return value.shape if isinstance(value, Tensor) else several
