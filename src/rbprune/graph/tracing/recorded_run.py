"""What a run of a network computes, operation by operation, without its numbers.

Every storage that a run touches has a key. That of an input, a parameter or a followed buffer is its name; that of
anything computed follows from the operation and from the keys, shapes and strides of what it reads. Two runs that share
one table of keys have computed the same, from the same, exactly where their keys are equal. Tensors that depend on no
input and no parameter are constants: they are told apart by their shape alone, since a trace may have computed them
beforehand. Plain floating-point numbers are not compared for the same reason.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from rbprune.graph.tracing.source_line import current_source_line


class Keys(dict[Hashable, int]):
    """The key of each way to compute something; the runs that are to be compared share one.

    ``results`` are the shapes, strides and types of what operations return on the meta device, by those of their
    arguments: the second run need not ask torch again.
    """

    def __init__(self, results: dict[Hashable, Any] | None = None) -> None:
        super().__init__()
        self.results: dict[Hashable, Any] = {} if results is None else results


class Origin(IntEnum):
    """What a tensor depends on."""

    CONSTANT = 0
    WEIGHTS = 1
    INPUTS = 2


@dataclass(frozen=True)
class Content:
    """What a storage holds at some moment of a run."""

    key: int
    origin: Origin


@dataclass(frozen=True)
class Operation:
    """One operation of a run: the key of what it made, its name, the keys of what it read, and its line of source."""

    key: int
    name: str
    read: tuple[int, ...]
    line: str | None


class RecordedRun(TorchDispatchMode):
    """While it is entered, notes every operation on tensors; with the lines of source, if asked for."""

    def __init__(self, keys: Keys, *, with_lines: bool = True) -> None:
        super().__init__()
        self.keys, self.with_lines = keys, with_lines
        self.operations: list[Operation] = []
        self._contents: dict[int, Content] = {}
        self._alive: list[Tensor] = []  # the address of a storage names it only as long as it lives
        self._constant = Content(self._key(("constant",)), Origin.CONSTANT)

    def name(self, tensor: Tensor, name: Hashable, origin: Origin) -> None:
        """Let a tensor be known by a name in all runs."""
        self._hold(tensor, Content(self._key(name), origin))

    def forget(self, tensors: Iterable[Tensor]) -> None:
        """Let tensors be constants."""
        for tensor in tensors:
            self._hold(tensor, self._constant)

    def content(self, tensor: Tensor) -> Content:
        """What the storage of a tensor holds now."""
        return self._contents.get(_address(tensor), self._constant)

    def restore(self, tensor: Tensor, content: Content) -> None:
        """Let a tensor hold what it held earlier."""
        self._hold(tensor, content)

    def value_key(self, tensor: Tensor) -> int:
        """The key of what a tensor is now: of its storage, and where in that it lies."""
        return self._key(self._signature(tensor))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        name = schema.name.removeprefix("aten::")
        plain_name = name.rstrip("_") if args and _is_whole(args[0]) else name  # what x += y makes is x + y
        signature = (plain_name, schema.overload_name, self._signature(args), self._signature(kwargs))
        read = [self.content(tensor) for tensor in _tensors((args, kwargs))]
        result = self._result(func, args, kwargs)
        origin = max((content.origin for content in read), default=Origin.CONSTANT)
        written = [
            tensor
            for place, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
            for tensor in _tensors(args[place] if place < len(args) else kwargs.get(argument.name))
        ]
        fresh = [tensor for tensor in _tensors(result) if _address(tensor) not in self._contents]
        made = list({_address(tensor): tensor for tensor in (*written, *fresh)}.values())
        for number, tensor in enumerate(made):
            if origin is Origin.CONSTANT:
                self._hold(tensor, self._constant)
                continue
            key = self._key((*signature, number))
            self._hold(tensor, Content(key, origin))
            line = current_source_line() if self.with_lines else None
            self.operations.append(Operation(key, name, tuple(c.key for c in read), line))
        return result

    def _result(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What an operation returns; one on the meta device runs only where nobody knows yet what that looks like."""
        tensors = _tensors((args, kwargs))
        if not tensors or not all(tensor.is_meta for tensor in tensors):
            return func(*args, **kwargs)
        schema = func._schema
        if schema.name == "aten::native_batch_norm":
            return _normalised(args[0])
        if schema.name.endswith("_") and torch.Tag.inplace_view not in func.tags and isinstance(args[0], Tensor):
            return args[0]
        if any(each.alias_info is not None for each in (*schema.arguments, *schema.returns)):
            return func(*args, **kwargs)
        looks = (schema.name, schema.overload_name, _looks(args), _looks(kwargs))
        if looks not in self.keys.results:
            result = func(*args, **kwargs)
            given = {_address(tensor) for tensor in tensors}
            # a view, of which torch does not always say that it is one (_unsafe_view), is made anew each time
            if not any(_address(tensor) in given for tensor in _tensors(result)):
                self.keys.results[looks] = tree_map_only(Tensor, _Look.of, result)
            return result
        return tree_map_only(_Look, _Look.tensor, self.keys.results[looks])

    def _key(self, signature: Hashable) -> int:
        return self.keys.setdefault(signature, len(self.keys))

    def _hold(self, tensor: Tensor, content: Content) -> None:
        self._alive.append(tensor)
        self._contents[_address(tensor)] = content

    def _signature(self, value: Any) -> Hashable:
        """All of an argument that two runs are compared by."""
        if isinstance(value, Tensor):
            content = self.content(value)
            if content.origin is Origin.CONSTANT:
                return ("tensor", content.key, tuple(value.shape))
            return ("tensor", content.key, tuple(value.shape), value.stride(), value.storage_offset())
        if isinstance(value, tuple | list):
            return tuple(self._signature(each) for each in value)
        if isinstance(value, dict):
            return tuple((name, self._signature(each)) for name, each in value.items())
        if isinstance(value, float):
            return "float"
        if isinstance(value, bool | int | str | torch.dtype | torch.layout | torch.memory_format) or value is None:
            return (type(value).__name__, value)
        return type(value).__name__


@dataclass(frozen=True)
class _Look:
    """All that there is to a tensor on the meta device."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> _Look:
        return cls(tensor.shape, tensor.stride(), tensor.dtype)

    def tensor(self) -> Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")


def _looks(value: Any) -> Hashable:
    """Arguments, with nothing but the looks of tensors."""
    if isinstance(value, Tensor):
        return _Look.of(value)
    if isinstance(value, tuple | list):
        return tuple(_looks(each) for each in value)
    if isinstance(value, dict):
        return tuple((name, _looks(each)) for name, each in value.items())
    return (type(value).__name__, repr(value))


def _address(tensor: Tensor) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # a tensor without a storage: sparse, nested
        return id(tensor)


def _is_whole(value: Any) -> bool:
    """Whether a tensor is all of its storage, so that who writes into it leaves nothing of what was there."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return False
    return bool(value.numel() * value.element_size() == value.untyped_storage().nbytes())


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, tuple | list):
        return []
    return [tensor for each in value for tensor in _tensors(each)]


def _normalised(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What batch normalisation returns, without its numbers, which would take by far the longest of all operations."""
    return torch.empty_like(x), x.new_empty(0), x.new_empty(0)
