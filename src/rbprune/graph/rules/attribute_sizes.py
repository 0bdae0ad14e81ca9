"""Sizes that a forward takes from attributes of its modules: ``x.split(self.widths, 1)``.

To a trace they are plain numbers. A cut may change such an attribute only where nothing else is made of it, so two
things are known of it: every place of the source where it is read while the forward runs (``tracing/module_widths``),
and, from the syntax there, that it stands by itself in an argument that is a size. Anything else leaves it a written
number.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

from torch import Tensor, fx, nn

from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind
from rbprune.graph.size_attributes import Counted, size_of

_Span = tuple[int | None, int | None, int | None, int | None]
"""Where an expression stands in its file: first and last line, first and last column."""


@dataclass(frozen=True)
class _Size:
    """An attribute as a size in a call: which call, and which of its sizes it is (None where it is the argument)."""

    name: str
    call: ast.Call
    index: int | None


def counted_by(propagation: Propagation, node: fx.Node, given: Any) -> list[Counted] | None:
    """The attributes that hold the size, or each of the sizes, that an operation is given; None where they are written
    otherwise."""
    call = _only_call(node)
    if call is None:
        return None
    for path in reversed(info(node).modules):
        module = propagation.modules[path]
        read = _sizes_of(propagation.size_reads, module, call)
        if read:
            path = next(name for name, same in propagation.modules.items() if same is module)  # it may have several
            return _matching(path, module, read, given)
    return None


def follow(propagation: Propagation, node: fx.Node, counted: Counted, ids: Tensor) -> None:
    """Let the number in an attribute follow these channels, when some of them go; where some of them may not, none."""
    known = propagation.axis(counted.owner, "along", ids, counted=counted)
    if not (ids.numpy().all() and known.numpy().all()):  # the frozen identity is 0
        for each in (ids, known):
            propagation.freeze(node, each, f"uses {counted.owner} for what may not change", Kind.SIZE_USED)


def _matching(path: str, module: nn.Module, read: Mapping[int | None, str], given: Any) -> list[Counted] | None:
    """The attributes in the order of the sizes, where they hold these sizes and no others."""
    if isinstance(given, int):
        found = [Counted(path, read[None])] if set(read) == {None} else []
    elif set(read) == {None}:
        found = [Counted(path, f"{read[None]}[{i}]") for i in range(len(given))]
    else:
        found = [Counted(path, name) for _, name in sorted(read.items(), key=lambda item: item[0] or 0)]
    sizes = [given] if isinstance(given, int) else list(given)
    return found if found and [size_of(module, counted.key) for counted in found] == sizes else None


def _sizes_of(
    reads: Mapping[tuple[nn.Module, str], set[tuple[CodeType, int]]], module: nn.Module, call: ast.Call
) -> dict[int | None, str]:
    """The attributes of a module that are sizes of a call, each of which is read as a size and as nothing else."""
    found: dict[int | None, str] = {}
    for (owner, name), places in reads.items():
        if owner is module:
            sizes = [_size_at(code, instruction, name) for code, instruction in places]
            if all(size is not None for size in sizes):
                found |= {size.index: name for size in sizes if size is not None and size.call is call}
    return found


def _only_call(node: fx.Node) -> ast.Call | None:
    """The call of the operation in the source, where no other of its name is on that line."""
    file, _, line = (info(node).source_line or "").rpartition(":")
    wanted = getattr(node.target, "__name__", str(node.target))
    if not file:
        return None
    calls = [call for call in _source(file).calls if call.lineno <= int(line) <= (call.end_lineno or 0)]
    calls = [call for call in calls if _name_of(call) == wanted]
    return calls[0] if len(calls) == 1 else None


def _size_at(code: CodeType, instruction: int, name: str) -> _Size | None:
    """What an instruction that reads an attribute of that name reads it for; None where it is no size."""
    spans = list(code.co_positions())
    span = spans[instruction // 2]
    size = _source(code.co_filename).sizes.get(span)
    return size if size is not None and size.name == name else None


@dataclass(frozen=True)
class _Source:
    """What is known of a file: the calls that take sizes, and every attribute that is a size in one, by its place."""

    calls: list[ast.Call]
    sizes: dict[_Span, _Size]


@lru_cache(maxsize=64)
def _source(file: str) -> _Source:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return _Source([], {})
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _name_of(node) in _SIZE_ARGUMENTS]
    sizes: dict[_Span, _Size] = {
        (each.lineno, each.end_lineno, each.col_offset, each.end_col_offset): _Size(each.attr, call, index)
        for call in calls
        for index, each in _attributes_in(call)
    }
    return _Source(calls, sizes)


_SIZE_ARGUMENTS = {"split": ("split_size_or_sections", "split_size"), "group_norm": ("num_groups",)}
"""Functions that take a size as their second argument, or by one of these names."""


def _name_of(call: ast.Call) -> str | None:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else None


def _attributes_in(call: ast.Call) -> Iterator[tuple[int | None, ast.Attribute]]:
    """The attributes that are sizes in a call: one by itself, or a list of nothing else."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_method = isinstance(call.func, ast.Attribute) and _name_of(call) == "split"
    is_method = is_method and not (isinstance(owner, ast.Name) and owner.id == "torch")
    position = 0 if is_method else 1
    given = call.args[position] if len(call.args) > position else None
    for keyword in call.keywords:
        if keyword.arg in _SIZE_ARGUMENTS[_name_of(call) or ""]:
            given = keyword.value
    if isinstance(given, ast.Attribute):
        yield None, given
    elif isinstance(given, ast.List | ast.Tuple):
        elements = [each for each in given.elts if isinstance(each, ast.Attribute)]
        if len(elements) == len(given.elts):
            yield from enumerate(elements)
