"""The graph of a forward from how it runs, without stand-ins that code can tell from tensors.

It needs no comparison with the real forward, since it is one, and so it takes a fraction of the time. It is there for
networks of which the events of a run tell everything: no forward hooks, no sizes, no way that depends on values or on
the device, and the same in training as in evaluation. All others are traced by fx and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules import module as torch_module
from torch.nn.utils.weight_norm import WeightNorm
from torch.utils._pytree import tree_flatten, tree_unflatten

from rbprune.graph.node_info import ModuleCall, info
from rbprune.graph.propagation import Propagation
from rbprune.graph.rules import teaches_own_functions
from rbprune.graph.tracing.event import CalledModule, Event, Made
from rbprune.graph.tracing.forward_events import ForwardEvents, NotFollowedError
from rbprune.graph.tracing.hooks import hooks_on_output
from rbprune.graph.tracing.known_results import known_result
from rbprune.graph.tracing.module_widths import WidthReads
from rbprune.graph.tracing.preserve_model import preserve_model, seed_all
from rbprune.graph.tracing.stand_ins import on_meta
from rbprune.graph.tracing.tracer import is_layer
from rbprune.utils.inputs import Arguments


@dataclass
class _Run:
    """What a forward did in one mode, and what it returned, with ``Made`` in place of tensors."""

    events: list[Event]
    calls: list[CalledModule]
    outputs: Any

    def does_the_same(self, other: _Run) -> bool:
        return (
            len(self.events) == len(other.events)
            and (self.calls, self.outputs) == (other.calls, other.outputs)
            and all(mine.does_the_same(its) for mine, its in zip(self.events, other.events, strict=True))
        )


class _Told:
    """A module that tells when it is called."""

    def __init__(self, path: str, module: nn.Module, propagation: Propagation) -> None:
        self.path, self.module = path, module
        self.is_leaf = is_layer(propagation, module)
        self.known = known_result(module) if self.is_leaf else None
        self._told: dict[str, Any] = {}
        """The attributes of the module with which it tells."""

    def tell(self, run: ForwardEvents) -> None:
        """From now on, let the module tell a run when it is called, and when somebody reads its widths."""
        self._run = run
        attributes = vars(self.module)
        if self._told:  # the same again, but for the mode
            self._told["training"] = attributes["training"]
            attributes.clear()
            attributes.update(self._told)
            return
        if self.path:
            attributes["forward"] = self._telling_forward()
        run.width_reads.watch(self.module)
        self._told = dict(attributes)

    def _telling_forward(self) -> Callable[..., Any]:
        path, module, known, forward = self.path, self.module, self.known, self.module.forward
        if self.is_leaf:
            return lambda *args, **kwargs: self._run.call_leaf(path, module, forward, known, args, kwargs)
        return lambda *args, **kwargs: self._run.call_followed(path, module, forward, args, kwargs)


def direct_trace(propagation: Propagation, inputs: Arguments, width_reads: WidthReads) -> fx.Graph | None:
    """The graph of a model's forward, which is the same in both modes; None where its events would not tell it.

    The forward runs once in each mode, so that one which is another at its second call is noticed too.
    """
    model = propagation.modules[""]
    if not _can_be_told(propagation.modules.values()):
        return None
    try:
        modules = [_Told(path, module, propagation) for path, module in model.named_modules()]
        with preserve_model(model, training=False) as put_back:
            first = _run(model, modules, inputs, ForwardEvents(model, width_reads))
            put_back(True)
            second = _run(model, modules, inputs, ForwardEvents(model, width_reads, first.events))
    except Exception:  # of the forward, or a NotFollowedError: whose fault it is, the longer way finds out
        return None
    return _graph(propagation, first) if first.does_the_same(second) else None


def _can_be_told(modules: Iterable[nn.Module]) -> bool:
    """Whether nothing stands around the forward that changes what calls and operations do, or hides them."""
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks or teaches_own_functions():
        return False
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        return False
    return not any(map(_is_special, modules))


def _is_special(module: nn.Module) -> bool:
    """Whether a module has forward hooks of the user's, or is compiled."""
    if hooks_on_output(module) or any(not isinstance(hook, WeightNorm) for hook in module._forward_pre_hooks.values()):
        return True
    compiled = isinstance(module, torch.jit.ScriptModule) or module._compiled_call_impl is not None
    return compiled or type(module).__module__.startswith("torch._dynamo")


def _run(model: nn.Module, modules: list[_Told], inputs: Arguments, run: ForwardEvents) -> _Run:
    """Run the forward in the mode that the model is in; whoever calls this puts the attributes of its modules back."""
    for told in modules:
        told.tell(run)
    flat, structure = tree_flatten((inputs.args, inputs.kwargs))
    flat = [run.take_input(i, value) if isinstance(value, Tensor) else value for i, value in enumerate(flat)]
    args, kwargs = tree_unflatten(flat, structure)
    seed_all()
    with run:
        outputs = model.forward(*args, **kwargs)
    described = run.describe(outputs)
    if run.refused:
        raise NotFollowedError(run.refused)
    return _Run(run.events, run.calls, described)


def _graph(propagation: Propagation, run: _Run) -> fx.Graph:
    """The graph of fx that has a node for each event."""
    graph = fx.Graph()
    nodes: list[fx.Node] = []

    def node_of(made: Made | None) -> fx.Node | None:
        return None if made is None else nodes[made.number]

    def with_nodes(value: Any) -> Any:
        kind = type(value)
        if kind is Made:
            return nodes[value.number]
        if kind is tuple or kind is list:
            return kind([with_nodes(each) for each in value])
        return {name: with_nodes(each) for name, each in value.items()} if kind is dict else value

    for event in run.events:
        node = graph.create_node(event.op, event.target, with_nodes(event.args), with_nodes(event.kwargs))
        known = info(node)
        known.source_line, known.modules, known.layers_inside = event.line, event.modules, event.layers_inside
        known.result = on_meta(event.result) if event.op == "get_attr" else event.result
        nodes.append(node)
    output = graph.create_node("output", "output", (with_nodes(run.outputs),))
    info(output).modules = ("",)
    propagation.calls[graph] = [ModuleCall(c.path, node_of(c.source), node_of(c.output)) for c in run.calls]
    return graph
