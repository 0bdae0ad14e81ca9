"""What Python must know while a forward is followed: sizes, types and the like, as they are for the example."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from typing import Any

from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from rbprune.errors import first_line
from rbprune.graph.markers import size_in_python
from rbprune.graph.node_info import info
from rbprune.graph.tracing.module_widths import WidthReads
from rbprune.graph.tracing.shapes import MetaInterpreter
from rbprune.graph.tracing.source_line import is_users
from rbprune.graph.tracing.stand_ins import on_meta

_QUESTIONS = ("size", "dim", "numel", "is_floating_point", "is_complex", "element_size")
_ATTRIBUTES = ("shape", "ndim", "dtype", "device", "layout", "itemsize", "is_sparse", "is_quantized", "is_mkldnn")
_OF_DEVICE = ("device", "is_cuda", "is_cpu", "is_mps", "is_xpu", "is_xla", "is_meta")
_JIT = "torch/_jit_internal.py"
"""Where torch.jit.isinstance asks."""
_ARITHMETIC = ("_operator", "math", "builtins")


class TracedValue(fx.Proxy):
    """A value in the graph that can also be written into (x[:, 0] = 0), and be a plain number where Python asks."""

    tracer: ConcreteSizeTracer
    _is_param = False  # torch asks this of everything that is called a tensor

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        """To the model's own code (``isinstance(x, Tensor)``) a value is what it stands for; to fx it is a proxy."""
        asking = sys._getframe(1).f_code.co_filename
        return self.tracer.concrete_type(self) if is_users(asking) or asking.endswith(_JIT) else TracedValue

    def __getattr__(self, name: str) -> Any:
        if name in _ATTRIBUTES or name in _OF_DEVICE:
            return self.tracer.create_proxy("call_function", getattr, (self, name), {})
        return super().__getattr__(name)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.tracer.create_proxy("call_function", operator.setitem, (self, index, value), {})

    def __index__(self) -> int:
        return operator.index(self.tracer.concrete_value(self))

    def __int__(self) -> int:
        return int(self.tracer.concrete_value(self))

    def __float__(self) -> float:
        return float(self.tracer.concrete_value(self))

    def __len__(self) -> int:
        return self.tracer.concrete_length(self)


class ConcreteSizeTracer(fx.Tracer):
    """Where Python asks for a number that is made of nothing but sizes, runs the graph so far without computing."""

    inputs: Any
    runs_modules = False
    """Whether modules run, rather than being followed."""

    def __init__(self, width_reads: WidthReads, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.width_reads = width_reads
        self._results: dict[fx.Node, Any] = {}

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """What stands for a node's result in the forward."""
        return TracedValue(node, self)

    def concrete_value(self, obj: fx.Proxy) -> Any:
        """The number that a traced value is for the example; the channels that it counts may not go any more."""
        if not _is_number(obj.node):
            raise fx.proxy.TraceError(f"{obj.node.name} is a value that depends on data, and cannot be a number yet")
        value = self._known(obj.node)
        self.create_proxy("call_function", size_in_python, (obj,), {})
        return value

    def concrete_type(self, obj: fx.Proxy) -> type:
        """What a traced value is an instance of, for the example."""
        if self.runs_modules:
            return TracedValue
        try:
            value = self._result(obj.node)
        except Exception as error:
            raise fx.proxy.TraceError(f"the type of {obj.node.name} is not known: {first_line(error)}") from error
        return Tensor if isinstance(value, Tensor) else type(value)

    def _known(self, node: fx.Node) -> Any:
        """The value of a number for the example; what is asked of a device is answered by the example's own."""
        if node.target is getattr and node.args[1] in _OF_DEVICE:
            return getattr(next(leaf for leaf in tree_leaves(self.inputs) if isinstance(leaf, Tensor)), node.args[1])
        if _is_question(node):
            return self._result(node)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._known)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def to_bool(self, obj: fx.Proxy) -> bool:
        """The answer that ``if`` and ``assert`` ask for."""
        return bool(self.concrete_value(obj)) if _is_number(obj.node) else super().to_bool(obj)

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """The values that ``b, c, *rest = x.shape`` and ``list(x.chunk(2, 1))`` ask for."""
        try:
            count = self.concrete_length(obj)
        except fx.proxy.TraceError:
            return super().iter(obj)
        return iter([self.create_proxy("call_function", operator.getitem, (obj, i), {}) for i in range(count)])

    def concrete_length(self, obj: fx.Proxy) -> int:
        """The length of a shape, or of several results; that of a tensor is a size, and must be asked for as one."""
        value = self._result(obj.node)
        if isinstance(value, Tensor) or not hasattr(value, "__len__"):
            raise fx.proxy.TraceError(f"the length of {obj.node.name} is not fixed; write .size(0) for a tensor's")
        return len(value)

    def _result(self, wanted: fx.Node) -> Any:
        """What a node of the graph so far returns for the example, without values."""
        run = MetaInterpreter(self.root, self.graph)
        run.env = self._results
        tensors = iter([leaf for leaf in tree_leaves(self.inputs) if isinstance(leaf, Tensor)])
        self.runs_modules = True
        try:
            with self.width_reads.paused():
                for node in list(self.graph.nodes):
                    given = on_meta(next(tensors)) if node.op == "placeholder" else None
                    if node not in self._results:
                        self._results[node] = run.run_node(node) if given is None else given
        finally:
            self.runs_modules = False
        return self._results[wanted]


def _is_number(node: fx.Node) -> bool:
    """Whether it is a size, a shape, or arithmetic with nothing but these."""
    known = info(node)
    if known.is_number is None:
        asked = _is_question(node)
        home = str(getattr(node.target, "__module__", ""))
        counted = node.op == "call_function" and home in _ARITHMETIC and bool(node.all_input_nodes)
        known.is_number = asked or (counted and all(map(_is_number, node.all_input_nodes)))
    return known.is_number


def _is_question(node: fx.Node) -> bool:
    """Whether it asks a tensor for something that does not depend on its values."""
    name = getattr(node.target, "__name__", str(node.target))
    return name in _QUESTIONS or (node.target is getattr and node.args[1] in (*_ATTRIBUTES, *_OF_DEVICE))
