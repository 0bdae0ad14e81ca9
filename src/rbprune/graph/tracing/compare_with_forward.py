"""Whether the traced graph computes what the model's own forward computes: both run, and every operation is compared.

A trace runs a forward with stand-ins in place of tensors. Code that asks what it is given (``type(x) is Tensor``,
``callable(x)``), forward hooks that hand activations on to later code, and state that a forward changes lead it
astray, in silence. So the forward runs once more as it is, with all hooks on it, and the graph must have computed its
outputs in the same way. Both run on the meta device, where nothing is computed; where a forward looks at values there,
or asks for the device and does something else on this one, both run for real.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from rbprune.errors import UnprunableError
from rbprune.graph.node_info import info
from rbprune.graph.tracing.hooks import HookedModule, on_copies
from rbprune.graph.tracing.preserve_model import preserve_model, seed_all
from rbprune.graph.tracing.recorded_run import Keys, Origin, RecordedRun
from rbprune.graph.tracing.shapes import PlainInterpreter, cannot_be_traced, forward_failed, plain
from rbprune.graph.tracing.source_line import error_source_line
from rbprune.graph.tracing.stand_ins import StandIn, on_meta, put_stand_ins
from rbprune.utils.inputs import Arguments


@dataclass
class MetaDevice:
    """What the comparisons of one trace need not make twice: stand-ins for the model's tensors, by the id of those, and
    what operations return (``Keys``)."""

    stand_ins: dict[int, Tensor] = field(default_factory=dict)
    results: dict[Hashable, Any] = field(default_factory=dict)


@dataclass
class TracedForward:
    """A graph, and the forward that it was traced from, in one mode.

    ``hooked`` are the modules with hooks, ``root_hooks`` the hooks on the outputs of the model itself, ``constants``
    the attributes of the model that fx has made of tensors which the forward made.
    """

    model: nn.Module
    graph: fx.Graph
    inputs: Arguments
    training: bool
    hooked: dict[str, HookedModule]
    root_hooks: list[tuple[Callable[..., Any], bool]]
    constants: dict[str, Any]
    meta: MetaDevice = field(default_factory=MetaDevice)

    def compare(self) -> None:
        """Raise an ``UnprunableError`` unless the graph computes what the forward computes, with all its hooks on."""
        differs = False
        with suppress(Exception):  # of a forward that needs values, or a device
            differs = self._difference(on_meta) is not None
            if not differs:
                return
        found = self._difference(torch.clone)
        if found is None and differs:  # the device may have made the difference, but then it does not come and go
            found = self._difference(torch.clone)
        if found is not None:
            mode = "training" if self.training else "evaluation"
            raise UnprunableError(
                f"the trace of {type(self.model).__name__} is not what its forward computes in {mode}: {found}; a "
                "forward hook that hands an activation on, a question about the type of a value (type(x) is Tensor, "
                "callable(x)) or state that a forward changes leads a trace astray: take it out, or prune a submodule "
                "that has none of it"
            )

    def _difference(self, stand_in: StandIn) -> str | None:
        """Run both, and say in which operation they differ, if in any."""
        keys = Keys(self.meta.results)
        traced, from_graph = self._run_graph(keys, stand_in)
        run, from_forward = self._run_forward(keys, stand_in)
        if isinstance(from_forward, str):
            return from_forward
        if _value_keys(traced, from_graph) == _value_keys(run, from_forward):
            return None
        if self.hooked:
            plain, without_hooks = self._run_forward(keys, stand_in, hooks=False)
            if _value_keys(traced, from_graph) == _value_keys(plain, without_hooks):
                names = ", ".join(repr(name) for name in list(self.hooked)[:5])
                return f"what a forward hook of {names} sees is used by somebody else"
        return _first_difference(traced, run, from_forward)

    def _run_graph(self, keys: Keys, stand_in: StandIn) -> tuple[RecordedRun, Any]:
        with self._prepared(keys, stand_in, with_lines=False) as (run, (args, kwargs)):
            for name, value in self.constants.items():
                setattr(self.model, name, tree_map_only(Tensor, stand_in, value))
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            try:
                with run:
                    return run, _ForwardsOnly(self.model, self.graph).run(*tensors)
            except Exception as error:
                raise cannot_be_traced(self.model, error) from error

    def _run_forward(self, keys: Keys, stand_in: StandIn, *, hooks: bool = True) -> tuple[RecordedRun, Any]:
        """Run the forward; the outputs may be a string, which says what is wrong with a hook of the model itself."""
        with self._prepared(keys, stand_in) as (run, (args, kwargs)):
            if hooks:
                for name, each in self.hooked.items():
                    _put_back_hooks(each, run, changes=self._changes(name, each))
            try:
                with run:
                    outputs = self.model.forward(*args, **kwargs)
            except Exception as error:
                raise forward_failed((*args, *kwargs.values()), error_source_line(error), error) from error
            wrong = self._judge_root_hooks(run, args, kwargs, outputs) if hooks else None
            return run, outputs if wrong is None else wrong

    def _changes(self, name: str, each: HookedModule) -> bool:
        """Whether hooks of a module change what passes, which stays then; or may, where all around the module stays."""
        unfollowed = [str(n.target) for n in self.graph.nodes if n.op == "call_module" and info(n).failure]
        inside = any(name == outer or name.startswith(f"{outer}.") for outer in unfollowed)
        return bool(each.effects) or (each.effects is None and inside)

    def _judge_root_hooks(self, run: RecordedRun, args: Any, kwargs: Any, outputs: Any) -> str | None:
        """What is wrong with a hook of the model itself: it may change the outputs, but add nothing from inside."""
        keep = [(tensor, run.content(tensor)) for tensor in _tensors_in(outputs)]
        run.forget([*_tensors_in(args), *_tensors_in(kwargs), *(tensor for tensor, _ in keep)])
        wrong = None
        for hook, takes in self.root_hooks:
            try:
                with run:
                    given = hook(self.model, args, kwargs, outputs) if takes else hook(self.model, args, outputs)
            except Exception:  # a hook that fails hands nothing on
                continue
            if any(run.content(tensor).origin is not Origin.CONSTANT for tensor in _tensors_in(given)):
                wrong = "a forward hook of the model itself returns something else than it makes of the outputs"
        for tensor, content in keep:
            run.restore(tensor, content)
        return wrong

    @contextmanager
    def _prepared(
        self, keys: Keys, stand_in: StandIn, *, with_lines: bool = True
    ) -> Iterator[tuple[RecordedRun, Arguments]]:
        """Inside, the model has stand-ins for its tensors, which the run that is to be recorded knows by name."""
        on_device = torch.device("meta") if stand_in is on_meta else nullcontext()
        with ExitStack() as inside:
            inside.enter_context(preserve_model(self.model, training=self.training))
            inside.enter_context(_any_batch_size())
            run = RecordedRun(keys, with_lines=with_lines)
            put_stand_ins(self.model, stand_in, self.meta.stand_ins if stand_in is on_meta else {})
            for name, parameter in self.model.named_parameters():
                run.name(parameter, ("parameter", name), Origin.WEIGHTS)
            for name, buffer in self.model.named_buffers():
                if buffer.is_floating_point() and buffer.numel() > 1:
                    run.name(buffer, ("buffer", name), Origin.WEIGHTS)
            args, kwargs = tree_map_only(Tensor, lambda t: stand_in(t.detach()), (self.inputs.args, self.inputs.kwargs))
            for number, tensor in enumerate(_tensors_in((args, kwargs))):
                run.name(tensor, ("input", number), Origin.INPUTS)
            seed_all()
            inside.enter_context(on_device)
            yield run, Arguments(args, kwargs)


class _ForwardsOnly(PlainInterpreter):
    """Runs a graph as it was traced: without hooks that stand on all modules at once, which no leaf of it has seen."""

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.fetch_attr(target).forward(*plain(args), **plain(kwargs))


@contextmanager
def _any_batch_size() -> Iterator[None]:
    """Inside, batch normalisation takes a single value of each channel in training too: nobody looks at its numbers."""
    before = F._verify_batch_size  # type: ignore[attr-defined]
    F._verify_batch_size = lambda size: None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        F._verify_batch_size = before  # type: ignore[attr-defined]


def _put_back_hooks(each: HookedModule, run: RecordedRun, *, changes: bool) -> None:
    """Let a module have its hooks again. One that changes what passes gets copies, and what it returns is dropped: what
    it changes stays anyway (``hooks``), and so only what it hands on to others can be wrong."""

    def forget_computed(module: nn.Module, args: Any) -> None:
        """Weights that a hook has computed (spectral norm, masks) are what they are for the graph: constants."""
        values = [value for value in vars(module).values() if isinstance(value, Tensor)]
        run.forget(value for value in values if run.content(value).origin is Origin.WEIGHTS)

    def harmless(hook: Callable[..., Any]) -> Callable[..., Any]:
        return on_copies(hook, run) if changes else hook

    for hook, takes in each.pre:
        each.module.register_forward_pre_hook(harmless(hook), with_kwargs=takes)
    each.module.register_forward_pre_hook(forget_computed)
    for hook, takes in each.post:
        each.module.register_forward_hook(harmless(hook), with_kwargs=takes)


def _tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a value, also in the attributes of objects such as data classes."""
    found = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif hasattr(leaf, "__dict__") and not isinstance(leaf, type | nn.Module) and not callable(leaf):
            found += [v for v in tree_leaves(list(vars(leaf).values())) if isinstance(v, Tensor)]
    return found


def _value_keys(run: RecordedRun, outputs: Any) -> list[int]:
    return [run.value_key(tensor) for tensor in _tensors_in(outputs)]


def _first_difference(traced: RecordedRun, run: RecordedRun, outputs: Any) -> str:
    """The first operation that the outputs of a forward come from and that the trace has not."""
    makers = {operation.key: operation for operation in run.operations}
    known = {operation.key for operation in traced.operations}
    wanted, live = [run.content(tensor).key for tensor in _tensors_in(outputs)], set()
    while wanted:
        key = wanted.pop()
        if key in makers and key not in live:
            live.add(key)
            wanted += makers[key].read
    other = next((each for each in run.operations if each.key in live and each.key not in known), None)
    if other is None:
        return "it returns other values than the trace"
    line = f" ({other.line})" if other.line else ""
    return f"{other.name}{line} computes there what it does not compute in the trace"
