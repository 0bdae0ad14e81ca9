"""A forward as it runs, on tensors without values: which layers it calls and which operations, with what of each other.

Nothing stands in for a tensor here but a tensor on the meta device, so that code cannot tell, and takes the way that it
takes in earnest. Whatever the events would not tell in full ends the run (``NotFollowedError``): sizes, of which a
forward gets plain numbers; questions that tensors on this device answer otherwise; tensors that come from somewhere
else than the inputs, the weights and the operations before.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.overrides import TorchFunctionMode, is_tensor_method_or_property

from rbprune.errors import first_line
from rbprune.graph.tracing.event import CalledModule, Event, Made
from rbprune.graph.tracing.known_results import KnownResult, always_makes_anew, known_result_of_function
from rbprune.graph.tracing.module_widths import WidthReads
from rbprune.graph.tracing.source_line import current_source_line
from rbprune.graph.tracing.stand_ins import on_meta, put_stand_ins

Forward = Callable[..., Any]


class NotFollowedError(Exception):
    """A forward does something that its events would not tell in full."""


_PLAIN = {bool, int, float, str, type(None), type(Ellipsis), torch.dtype, torch.layout, torch.memory_format}
_SAME_ANSWER = {"dim", "is_floating_point", "is_complex", "ndim", "dtype", "layout"}
"""What may be asked of a tensor: no cut changes the answer, and without values it is the same."""
_TURNED_ROUND = {"__rsub__": operator.sub, "__rdiv__": operator.truediv, "__rpow__": operator.pow}
_OPERATORS = {"__getitem__": operator.getitem, "__setitem__": operator.setitem, "__eq__": operator.eq}


class ForwardEvents(TorchFunctionMode):
    """While it is entered, notes what the forward of a model does, in order.

    ``before`` are the events of an earlier run, to be compared with these: what is done again as it was done there need
    not be found out again, nor from which line of source it comes.
    """

    def __init__(self, model: nn.Module, width_reads: WidthReads, before: list[Event] | None = None) -> None:
        super().__init__()
        self.model, self.width_reads, self.before = model, width_reads, before
        self.events: list[Event] = []
        self.calls: list[CalledModule] = []
        self.refused: str | None = None
        """What could not be told: a forward may have caught the error."""
        self._path = [""]
        self._leaf: Event | None = None
        self._thread = get_ident()
        self._makers: dict[int, Made | tuple[Made, int]] = {}
        self._attributes: dict[int, str] = {}
        self._without_values: dict[int, Tensor] = {}
        self._alive: list[Any] = []  # an id names a tensor only as long as it lives

    def take_input(self, number: int, tensor: Tensor) -> Tensor:
        """What stands for a tensor among the inputs."""
        if type(tensor) is not Tensor:
            raise self._refuse(f"an input is a {type(tensor).__name__}")
        given = on_meta(tensor)
        self._note(Event("placeholder", f"input_{number}"), given)
        return given

    def describe(self, value: Any) -> Any:
        """A value with ``Made`` in place of tensors."""
        kind = type(value)
        if kind is Tensor or kind is nn.Parameter:
            return self._maker(value)
        if kind in _PLAIN:
            return value
        if kind is tuple or kind is torch.Size:
            return tuple([self.describe(each) for each in value])
        if kind is list:
            return [self.describe(each) for each in value]
        if kind is dict:
            return {name: self.describe(each) for name, each in value.items()}
        if kind is slice and {type(value.start), type(value.stop), type(value.step)} <= _PLAIN:
            return value
        raise self._refuse(f"a {kind.__name__} among the arguments")

    def call_followed(self, path: str, module: nn.Module, forward: Forward, args: Any, kwargs: Any) -> Any:
        """A module is called whose forward is followed."""
        if get_ident() != self._thread:
            return forward(*args, **kwargs)
        if self._leaf is not None:
            return _note_layer(self._leaf, module, args, forward(*args, **kwargs))
        source = self._one_tensor(args[0]) if len(args) == 1 and not kwargs else None
        self._path.append(path)
        try:
            result = forward(*args, **kwargs)
        finally:
            self._path.pop()
        self.calls.append(CalledModule(path, source, self._one_tensor(result)))
        return result

    def call_leaf(
        self, path: str, module: nn.Module, forward: Forward, known: KnownResult | None, args: Any, kwargs: Any
    ) -> Any:
        """A layer is called, which nobody looks into."""
        if get_ident() != self._thread:
            return forward(*args, **kwargs)
        if self._leaf is not None:
            return _note_layer(self._leaf, module, args, forward(*args, **kwargs))
        repeated = self._repeated(path, args) if self.before and known is not None and not kwargs else None
        if repeated is not None and always_makes_anew(module):
            return self._note_again(repeated)
        with torch._C.DisableTorchFunction():  # what happens inside is no event
            return self._note_leaf(path, module, forward, known, args, kwargs)

    def _repeated(self, path: str, args: Any) -> Event | None:
        """The event of the run before that is this call of a layer with a single tensor, where there is one."""
        number = len(self.events)
        event = self.before[number] if self.before is not None and number < len(self.before) else None
        if event is None or event.target is not path or len(args) != 1:
            return None
        given = self._makers.get(id(args[0]))
        is_same = type(given) is Made and event.args == (given,) and event.modules == (*self._path, path)
        return event if is_same and type(event.result) is Tensor else None

    def _note_again(self, event: Event) -> Any:
        """Note the call of a layer that returns what it returned before."""
        made = self._note(event, event.result)
        self.calls.append(CalledModule(event.target, event.args[0], made))
        return event.result

    def _note_leaf(
        self, path: str, module: nn.Module, forward: Forward, known: KnownResult | None, args: Any, kwargs: Any
    ) -> Any:
        event = Event("call_module", path, self.describe(args), self.describe(kwargs), (*self._path, path))
        source = event.args[0] if len(args) == 1 and not kwargs and type(event.args[0]) is Made else None
        if source is None and not _has_made((event.args, event.kwargs)):
            raise self._refuse(f"{path} is given no tensor")
        event.line = current_source_line() if self.before is None else None
        result = known(args[0]) if known is not None and source is not None else None
        if result is None:
            result = self._run_leaf(event, module, forward, args, kwargs)
        self._note(event, result)
        self.calls.append(CalledModule(path, source, self._one_tensor(result)))
        return result

    def _run_leaf(self, event: Event, module: nn.Module, forward: Forward, args: Any, kwargs: Any) -> Any:
        """Let torch tell what a layer returns, with tensors without values for weights."""
        put_stand_ins(module, on_meta, {})
        if self._attributes:
            self._attributes |= _attributes(module, f"{event.target}.")
        self._leaf = event
        try:
            with self.width_reads.paused(), self._errors_noted():
                return _note_layer(event, module, args, forward(*args, **kwargs))
        finally:
            self._leaf = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        asked = getattr(func.__self__, "__name__", "") if name == "__get__" else name
        if asked in _SAME_ANSWER:
            return func(*args, **kwargs)
        event = self._event(func, name, args, kwargs)
        if not _has_made((event.args, event.kwargs)):
            return func(*args, **kwargs)  # what it makes is known to nobody
        event.line = current_source_line() if self.before is None else None
        if self._attributes:
            args, kwargs = self._with_values_hidden((args, kwargs))
        result = known_result_of_function(name, args, kwargs)
        if result is None:
            with self._errors_noted():
                result = _called_in_one_shape(func, name, args, kwargs)
        self._note(event, result)
        return result

    @contextmanager
    def _errors_noted(self) -> Iterator[None]:
        """Inside, an error ends the run also where the forward catches it: with values there might be none."""
        try:
            yield
        except Exception as error:
            self._refuse(first_line(error))
            raise

    def _event(self, func: Any, name: str, args: Any, kwargs: Any) -> Event:
        """The event of an operation, before it runs."""
        op, target, given = "call_function", func, self.describe(args)
        if name in _TURNED_ROUND:
            target, given = _TURNED_ROUND[name], given[::-1]
        elif name in _OPERATORS:
            target = _OPERATORS[name]
        elif name.startswith(("__", "_foreach")) or "out" in kwargs:
            raise self._refuse(f"{name} of a tensor")
        elif is_tensor_method_or_property(func):
            op, target = "call_method", name
        touches = name.endswith("_") or name in ("__setitem__", "detach") or kwargs.get("inplace")
        if touches and args and id(args[0]) in self._attributes:  # fx does not see the weights that state_dict detaches
            raise self._refuse(f"{name} of {self._attributes[id(args[0])]}")
        return Event(op, target, given, self.describe(kwargs), tuple(self._path))

    def _maker(self, tensor: Tensor) -> Made:
        """The event that made a tensor: an operation, or that a weight was read."""
        made = self._makers.get(id(tensor))
        if type(made) is tuple:
            event = Event("call_function", operator.getitem, made, {}, tuple(self._path))
            return self._note(event, tensor)
        if made is not None:
            return made  # type: ignore[return-value]
        self._attributes = self._attributes or _attributes(self.model, "")
        if id(tensor) not in self._attributes:
            raise self._refuse("a tensor that comes from somewhere else")
        return self._note(Event("get_attr", self._attributes[id(tensor)], modules=tuple(self._path)), tensor)

    def _one_tensor(self, value: Any) -> Made | None:
        return self._maker(value) if type(value) is Tensor and id(value) in self._makers else None

    def _note(self, event: Event, result: Any) -> Made:
        made = Made(len(self.events))
        event.result = result
        self.events.append(event)
        self._alive.append(result)
        several = result if isinstance(result, tuple | list) else ()
        if type(result) is Tensor or type(result) is nn.Parameter:
            self._makers[id(result)] = made
        elif not several or not all(type(each) is Tensor or each is None for each in several):
            written = event.target is operator.setitem and result is None
            if not written:
                raise self._refuse(f"{event.target} returns a {type(result).__name__}")
        for number, each in enumerate(several):
            if each is not None:
                self._makers[id(each)] = (made, number)
        return made

    def _with_values_hidden(self, value: Any) -> Any:
        """Arguments with tensors without values in place of weights."""
        if isinstance(value, Tensor):
            if id(value) not in self._attributes:
                return value
            return self._without_values.setdefault(id(value), on_meta(value))
        if type(value) is dict:
            return {name: self._with_values_hidden(each) for name, each in value.items()}
        if type(value) in (tuple, list):
            return type(value)(self._with_values_hidden(each) for each in value)
        return value

    def _refuse(self, what: str) -> NotFollowedError:
        self.refused = self.refused or what
        return NotFollowedError(what)


def _attributes(module: nn.Module, prefix: str) -> dict[int, str]:
    """The parameters and followed buffers of a module, by id, each with its name."""
    buffers = [(name, b) for name, b in module.named_buffers() if b.is_floating_point() and b.numel() > 1]
    return {id(tensor): f"{prefix}{name}" for name, tensor in (*module.named_parameters(), *buffers)}


def _note_layer(event: Event, module: nn.Module, args: Any, result: Any) -> Any:
    """Note a convolution or linear layer that runs inside of a layer, or is it itself."""
    if isinstance(module, _ConvNd | nn.Linear):
        event.layers_inside.append((module, (args[0] if isinstance(module, _ConvTransposeNd) else result).shape))
    return result


def _called_in_one_shape(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """What an operation returns; one in place may give no tensor another shape, which would be told of it for ever."""
    before = args[0].shape if name.endswith("_") and isinstance(args[0], Tensor) else None
    result = func(*args, **kwargs)
    if before is not None and args[0].shape != before:
        raise NotFollowedError(f"{name} gives a tensor another shape in place")
    return result


def _has_made(value: Any) -> bool:
    if type(value) is Made:
        return True
    if type(value) is dict:
        return any(_has_made(each) for each in value.values())
    return type(value) in (tuple, list) and any(_has_made(each) for each in value)
