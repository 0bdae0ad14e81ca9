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
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.utils._pytree import tree_map_only

from rbprune.errors import ModelError, first_line
from rbprune.graph.node_info import LayersInside, info
from rbprune.graph.tracing.source_line import error_source_line


def note_shapes(model: nn.Module, graph: fx.Graph, inputs: tuple[Any, ...]) -> None:
    """Note the result of every node without its values (``NodeInfo.result``), and the layers that run inside of it.

    Tried in turn: the meta device (fast; fails for a forward that makes tensors on a device of its own), fake tensors,
    and, for a forward that looks at values, a real forward pass.
    """
    module = fx.GraphModule(model, graph)
    try:
        MetaInterpreter(module).run(*tree_map_only(Tensor, on_meta, inputs))
    except Exception:
        _fall_back(model, _NotingInterpreter(module), inputs)


def check_forward(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run the model on its example inputs: what it raises itself is not the trace's fault."""
    with _values_restored(model):
        try:
            model.forward(*args, **kwargs)
        except Exception as error:
            raise _forward_failed((*args, *kwargs.values()), error_source_line(error), error) from error


def _forward_failed(inputs: tuple[Any, ...], at: str, error: Exception) -> ModelError:
    given = [tuple(i.shape) if isinstance(i, Tensor) else type(i).__name__ for i in inputs]
    return ModelError(
        f"the model's forward fails on the example inputs {given}{at}: {first_line(error)}; "
        "pass example_inputs that it accepts"
    )


def _fall_back(model: nn.Module, shapes: _NotingInterpreter, inputs: tuple[Any, ...]) -> None:
    """Note results by fake tensors or by a real forward pass; what the forward raises then is the model's own error."""
    try:
        try:
            with _quiet("torch._subclasses.fake_tensor"), FakeTensorMode(allow_non_fake_inputs=True) as fake:
                shapes.run(*tree_map_only(Tensor, fake.from_tensor, inputs))
        except DataDependentOutputException:
            with _values_restored(model):
                shapes.run(*inputs)
    except Exception as error:
        at = f" at {getattr(shapes.at.target, '__name__', shapes.at.target)!r}" if shapes.at is not None else ""
        raise _forward_failed(inputs, at, error) from error


def on_meta(tensor: Tensor) -> Tensor:
    """A tensor of the same shape and type without values."""
    return torch.empty_like(tensor, device="meta")


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


class _NotingInterpreter(fx.Interpreter):
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
        module = self.fetch_attr(target)
        if isinstance(module, _BatchNorm) and type(module).forward is _BatchNorm.forward:
            module._check_input_dim(args[0])
            if args[0].shape[1] == module.num_features:
                return args[0]  # as torch would say too, in 50 times as long
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        empty = {name: on_meta(tensor) for name, tensor in tensors.items()}
        return functional_call(module, empty, args, kwargs) if empty else module(*args, **kwargs)
