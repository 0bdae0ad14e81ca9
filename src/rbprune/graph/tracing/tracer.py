"""From a model's forward to a graph of operations, by torch.fx."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from rbprune.errors import first_line
from rbprune.graph.layer_table import computes_as_torch, torch_kind
from rbprune.graph.markers import seen_by_hook
from rbprune.graph.node_info import ModuleCall, info
from rbprune.graph.propagation import Propagation
from rbprune.graph.rules import own_rule
from rbprune.graph.tracing.concrete_sizes import ConcreteSizeTracer
from rbprune.graph.tracing.hooks import HookedModule
from rbprune.graph.tracing.module_widths import WidthReads
from rbprune.graph.tracing.preserve_model import seed_all
from rbprune.graph.tracing.shapes import cannot_be_traced, check_forward
from rbprune.graph.tracing.source_line import current_source_line

_PARAMETRIZED = "torch.nn.utils.parametrize"


_FACTORIES = (
    torch.as_tensor,
    torch.zeros,
    torch.ones,
    torch.empty,
    torch.full,
    torch.rand,
    torch.randn,
    torch.arange,
    torch.linspace,
)
"""Functions that take sizes, which fx lets them record only when told to."""


class _Tracer(ConcreteSizeTracer):
    """Follows every module that it can; one whose forward cannot be followed is a leaf, and so has no rule.

    Tensors among the inputs are followed, all else in them (flags, None, defaults) is what it is.
    """

    def __init__(
        self,
        propagation: Propagation,
        inputs: Any,
        leaves: dict[str, str],
        hooked: dict[str, HookedModule],
        width_reads: WidthReads,
    ) -> None:
        super().__init__(width_reads, autowrap_functions=_FACTORIES)
        self._autowrap_search.append(torch)
        self.propagation, self.inputs, self.leaves, self.hooked = propagation, inputs, leaves, hooked
        self.thread = get_ident()
        self.path = [""]
        self.calls: list[ModuleCall] = []
        self.failed: tuple[Exception, list[str]] | None = None

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        flat, structure = tree_flatten(self.inputs)
        values = [self._input(i) if isinstance(value, Tensor) else value for i, value in enumerate(flat)]
        args, kwargs = tree_unflatten(values, structure)

        def run() -> Any:
            return self.root.forward(*args, **kwargs)

        return run, []

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(*args, **kwargs)
        info(node).source_line = current_source_line()
        info(node).modules = tuple(self.path)
        return node

    def _input(self, number: int) -> Any:
        return self.create_proxy("placeholder", f"input_{number}", (), {})

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if self.runs_modules or get_ident() != self.thread:
            return attr_val
        # per-channel buffers are followed like parameters; flags and counters are read, as control flow needs them
        self.proxy_buffer_attributes = (
            isinstance(attr_val, Tensor) and attr_val.is_floating_point() and attr_val.numel() > 1
        )
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return module_qualified_name in self.leaves or is_layer(self.propagation, m)

    def call_module(self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if self.runs_modules or get_ident() != self.thread:  # fx sees the modules that run in any thread
            return forward(*args, **kwargs)
        depth = len(self.path)
        try:
            path = self.path_of_module(m)
            self.path.append(path)
            source = args[0].node if len(args) == 1 and not kwargs and isinstance(args[0], fx.Proxy) else None
            each = self.hooked.get(path)
            if each is not None:
                args, kwargs = self._mark(path, "input", (args, kwargs))
            result = super().call_module(m, forward, args, kwargs)
            if path in self.leaves and isinstance(result, fx.Proxy):
                info(result.node).failure = self.leaves[path]
            if each is not None:
                to_node = lambda value: tree_map_only(fx.Proxy, lambda p: p.node, value)  # noqa: E731
                each.args, each.kwargs, each.output = to_node(args), to_node(kwargs), to_node(result)
                result = self._mark(path, "output", result)
            self.calls.append(ModuleCall(path, source, result.node if isinstance(result, fx.Proxy) else None))
            return result
        except Exception as error:
            if self.failed is None or self.failed[0] is not error:
                self.failed = (error, list(self.path))
            raise
        finally:
            del self.path[depth:]

    def _mark(self, path: str, place: str, values: Any) -> Any:
        def mark(value: fx.Proxy) -> fx.Proxy:
            marked = self.create_proxy("call_function", seen_by_hook, (value, path), {})
            self.hooked[path].marks[place].append(marked.node)
            return marked

        return tree_map_only(fx.Proxy, mark, values)


def is_layer(propagation: Propagation, module: nn.Module) -> bool:
    """Whether a module is one operation, into which nobody looks: it has a rule of its own, or is torch's."""
    if own_rule(propagation, module) or (torch_kind(module) is not None and computes_as_torch(module)):
        return True
    kind = next(base for base in type(module).__mro__ if base.__module__ != _PARAMETRIZED)
    library = kind.__module__.startswith(("torch.nn", "torch.ao.nn"))
    return library and not isinstance(module, nn.Sequential) and "forward" not in vars(module)


def trace_forward(
    propagation: Propagation, inputs: Any, hooked: dict[str, HookedModule], width_reads: WidthReads
) -> fx.Graph:
    """The graph of ``model.forward(*args, **kwargs)``, where inputs are (args, kwargs).

    Fills in ``hooked``, and ``width_reads`` with the widths that the forward reads.
    """
    model = propagation.modules[""]
    leaves: dict[str, str] = {}
    while True:
        tracer = _Tracer(propagation, inputs, leaves, hooked, width_reads)
        for each in hooked.values():
            each.marks = {"input": [], "output": []}
        seed_all()
        try:
            with width_reads.watching(model):
                graph = tracer.trace(model)
            for node in graph.nodes:
                node.meta.pop("is_wrapped", None)  # else a GraphModule tells fx, for good, to wrap torch.zeros
            propagation.calls[graph] = tracer.calls
            return graph
        except Exception as error:
            path = tracer.failed[1] if tracer.failed and tracer.failed[0] is error else [""]
            stuck = next((name for name in reversed(path) if name not in leaves), "")
            said = first_line(error)
            if stuck:
                leaves[stuck] = said
                continue
            check_forward(model, inputs, hooked)
            raise cannot_be_traced(model, error) from error
