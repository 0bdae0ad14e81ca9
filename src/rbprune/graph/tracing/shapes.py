"""The shape of every result in a traced network, without computing it where that is possible."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.func import functional_call
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils._pytree import tree_leaves, tree_map_only

from rbprune.errors import ModelError, UnprunableError, first_line
from rbprune.graph.node_info import LayersInside, info
from rbprune.graph.tracing.hooks import HookedModule, hooks_on
from rbprune.graph.tracing.source_line import error_source_line
from rbprune.graph.tracing.stand_ins import on_meta
from rbprune.utils.inputs import Arguments


def note_shapes(model: nn.Module, graph: fx.Graph, inputs: Arguments, hooked: dict[str, HookedModule]) -> None:
    """Note the result of every node without its values (``NodeInfo.result``), and the layers that run inside of it.

    Tried in turn: the meta device (fast; fails for a forward that makes tensors on a device of its own), fake tensors,
    and, for a forward that looks at values, a real forward pass.
    """
    try:
        MetaInterpreter(model, graph).run(*(on_meta(leaf) for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)))
    except Exception:
        _fall_back(model, _NotingInterpreter(model, graph), inputs, hooked)


def check_forward(model: nn.Module, inputs: Arguments, hooked: dict[str, HookedModule], at: str = "") -> None:
    """Run the model on its example inputs: what it raises itself is not the trace's fault. ``at`` says where it fails,
    where that is known already."""
    args, kwargs = tree_map_only(Tensor, torch.clone, (inputs.args, inputs.kwargs))
    with _values_restored(model), hooks_on(hooked):
        try:
            model.forward(*args, **kwargs)
        except Exception as error:
            raise forward_failed((*args, *kwargs.values()), at or error_source_line(error), error) from error


def forward_failed(inputs: tuple[Any, ...], at: str, error: Exception) -> ModelError:
    """The error for a forward that cannot run on its example."""
    given = [tuple(i.shape) if isinstance(i, Tensor) else type(i).__name__ for i in inputs]
    return ModelError(
        f"the model's forward fails on the example inputs {given}{at}: {first_line(error)}; "
        "pass example_inputs that it accepts"
    )


def cannot_be_traced(model: nn.Module, error: Exception, at: str = "") -> UnprunableError:
    """The error for a forward that can run, but not be followed."""
    return UnprunableError(
        f"the forward of {type(model).__name__} cannot be traced{at or error_source_line(error)}: {first_line(error)}; "
        "control flow that depends on data, and code that needs real tensors, cannot be followed in the outermost "
        "module: move it into a submodule (which is then left alone), or prune the submodule that has none"
    )


def _fall_back(
    model: nn.Module, shapes: _NotingInterpreter, inputs: Arguments, hooked: dict[str, HookedModule]
) -> None:
    """Note results by fake tensors or by a real forward pass; where both fail, the forward says whose fault it is."""
    tensors = tuple(leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor))
    try:
        try:
            with _quiet("torch._subclasses.fake_tensor"), FakeTensorMode(allow_non_fake_inputs=True) as fake:
                shapes.run(*tree_map_only(Tensor, fake.from_tensor, tensors))
        except DataDependentOutputException:
            with _values_restored(model):
                shapes.run(*tensors)
    except Exception as error:
        at = f" at {getattr(shapes.at.target, '__name__', shapes.at.target)!r}" if shapes.at is not None else ""
        check_forward(model, inputs, hooked, at)
        raise cannot_be_traced(model, error, at) from error


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Inside, a logger says nothing: what it would tell at length, our error tells in a line."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@contextmanager
def _values_restored(model: nn.Module) -> Iterator[None]:
    """Inside, the model may write into its parameters and buffers; afterwards they hold what they held before."""
    saved = [(tensor, tensor.clone()) for tensor in (*model.parameters(), *model.buffers())]
    try:
        yield
    finally:
        for tensor, value in saved:
            tensor.data.copy_(value)


@contextmanager
def _layers_noted(module: nn.Module | None) -> Iterator[LayersInside]:
    """Inside, notes which convolutions and linear layers of a module run."""
    found: LayersInside = []

    def note(layer: nn.Module, args: tuple[Any, ...], result: Tensor) -> None:
        found.append((layer, (args[0] if isinstance(layer, _ConvTransposeNd) else result).shape))

    layers = [] if module is None else [m for m in module.modules() if isinstance(m, _ConvNd | nn.Linear)]
    handles = [layer.register_forward_hook(note) for layer in layers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


class PlainInterpreter(fx.Interpreter):
    """Runs a graph with plain lists and dicts in place of fx's, which nobody can write into.

    It takes the modules of the model as they are: a GraphModule would copy them one by one.
    """

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        super().__init__(model, graph=graph)  # type: ignore[arg-type]

    def run_node(self, n: fx.Node) -> Any:
        return plain(super().run_node(n))

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_module(target, plain(args), plain(kwargs))


def plain(value: Any) -> Any:
    """A value with plain lists and dicts in place of fx's."""
    if type(value) is immutable_list:
        return [plain(each) for each in value]
    if type(value) is immutable_dict:
        return {name: plain(each) for name, each in value.items()}
    if type(value) is tuple:
        return tuple(plain(each) for each in value)
    return {name: plain(each) for name, each in value.items()} if type(value) is dict else value


class _NotingInterpreter(PlainInterpreter):
    """Runs a graph and notes results and the layers that a module uses; ``at`` is the node that it has come to."""

    at: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        self.at = n
        with _layers_noted(self.fetch_attr(str(n.target)) if n.op == "call_module" else None) as layers:
            result = super().run_node(n)
        info(n).layers_inside = layers
        info(n).result = tree_map_only(Tensor, lambda t: torch.empty(t.shape, device="meta"), result)
        return result


class MetaInterpreter(_NotingInterpreter):
    """Runs a graph on the meta device, where nothing is computed or written, and notes results and layers."""

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return on_meta(value) if isinstance(value, Tensor) else value

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        module, args, kwargs = self.fetch_attr(target), plain(args), plain(kwargs)
        if isinstance(module, _BatchNorm) and type(module).forward is _BatchNorm.forward and not kwargs:
            module._check_input_dim(args[0])
            if args[0].shape[1] == module.num_features:
                return args[0]  # as torch would say too, in 50 times as long
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        empty = {name: on_meta(tensor) for name, tensor in tensors.items()}
        return functional_call(module, empty, args, kwargs) if empty else module(*args, **kwargs)
