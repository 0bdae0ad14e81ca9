"""What a stage notices of the training loop around it: forward passes of the network and steps of its optimizers.

A loop of one's own is forward, loss + ``stage.kl()``, backward, step. Whatever else a method has to do in between hangs
on these calls, so that nothing can be forgotten; and what was left out all the same is told when the stage ends.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves

from rbprune.errors import LoopError, NumericalError, RbpruneError
from rbprune.utils import processes
from rbprune.utils.finite import broken_numbers
from rbprune.utils.inputs import Arguments

_RECENT_BATCHES, _RECENT_BYTES = 16, 1 << 28


class Watched(Protocol):
    """What is called at the moments of a training step."""

    module: nn.Module | None

    def before_step(self) -> None:
        """Gradients are there, and no optimizer has stepped yet."""

    def after_step(self) -> None:
        """The weights have made a step; once for each training step."""

    def clamp(self) -> None:
        """Some optimizer of the network's weights, or of what the method trains, has made a step."""


class LoopWatch:
    """Hooks on a model and on every optimizer of its parameters, until ``detach``."""

    def __init__(self, model: nn.Module, watched: Watched, *, remember: bool) -> None:
        self._model, self._watched = model, weakref.ref(watched)
        self.forwards = 0
        """Forward passes in training mode so far."""
        self.steps = 0
        """Steps of an optimizer of the network's weights so far."""
        self.own_steps = 0
        """Steps of an optimizer of what the method trains so far."""
        self.recent: deque[Arguments] = deque(maxlen=_RECENT_BATCHES if remember else 0)
        """The last inputs that the model saw in training."""
        self.gradients_agree = False
        """Whether somebody else averages the gradients of what the method trains over all processes."""
        self._stepped = True
        self._kinds: weakref.WeakKeyDictionary[torch.optim.Optimizer, tuple[bool, bool]] = weakref.WeakKeyDictionary()
        self._handle = model.register_forward_pre_hook(self._on_forward, with_kwargs=True)
        _listen()
        _watches.add(self)

    def detach(self) -> None:
        """Watch no longer."""
        self._handle.remove()
        _watches.discard(self)

    def fault(self, names: Sequence[str], *, kl: bool, steps: bool, own_steps: bool) -> RbpruneError | None:
        """What is wrong with the training that the judgement of some sites rests on: it left the network without
        numbers, or left something out."""
        broken = broken_numbers(self._model)
        if self.forwards and broken is not None:
            return NumericalError(
                f"after {self.forwards} training passes in the stage of {', '.join(names)}, {broken}; lower the "
                "learning rate, or look for a batch with NaN or infinity, and begin again from the weights of before"
            )
        missing = self.left_out(kl=kl, steps=steps, own_steps=own_steps)
        if missing is None:
            return None
        return LoopError(
            f"after {self.forwards} training passes nothing is known about the channels of {', '.join(names)}: the "
            f"loop left something out; {missing}"
        )

    def left_out(self, *, kl: bool, steps: bool, own_steps: bool) -> str | None:
        """What a loop that made training passes left out, as a remedy; what is true is there, or is not needed."""
        if not self.forwards:
            return None
        if not kl:
            return "add stage.kl() to the loss in every step, after the forward pass: loss = ... + stage.kl()"
        if not steps and not self.steps:
            return "step an optimizer of torch.optim that holds the network's parameters"
        if not own_steps and not self.own_steps:
            return "give the optimizer what the method trains too: Adam(stage.param_groups(lr=..., rate_lr=...))"
        return None

    def _on_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not (module.training and torch.is_grad_enabled()):
            return
        self.forwards += 1
        self._stepped = False
        if self.recent.maxlen:
            tensors = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor)]
            size = sum(a.numel() * a.element_size() for a in tensors)
            while self.recent and size * (len(self.recent) + 1) > _RECENT_BYTES:
                self.recent.popleft()
            self.recent.append(Arguments(args, kwargs))

    def _on_step(self, optimizer: torch.optim.Optimizer) -> None:
        watched = self._watched()
        if watched is None:
            return
        weights, own = self._trains(optimizer)
        if weights and not self._stepped:
            watched.before_step()
        if own and not self.gradients_agree:
            _average_gradients(watched.module)

    def _on_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        watched, (weights, own) = self._watched(), self._trains(optimizer)
        if watched is None or not (weights or own):
            return
        self.own_steps += own
        if weights and not self._stepped:
            self._stepped = True
            self.steps += 1
            watched.after_step()
        watched.clamp()

    def _trains(self, optimizer: torch.optim.Optimizer) -> tuple[bool, bool]:
        """Whether it trains weights of the network, and whether it trains what the method has beside them."""
        found = self._kinds.get(optimizer)
        if found is None:
            watched = self._watched()
            module = None if watched is None else watched.module
            held = {id(p) for group in optimizer.param_groups for p in group["params"]}
            weights = not held.isdisjoint(map(id, self._model.parameters()))
            own = module is not None and not held.isdisjoint(map(id, module.parameters()))
            found = self._kinds[optimizer] = (weights, own)
        return found


def _average_gradients(module: nn.Module | None) -> None:
    """What a method trains lies beside the network, where DistributedDataParallel of a user's loop cannot see it."""
    if module is not None and processes.world() > 1:
        for parameter in module.parameters():
            if parameter.grad is not None:
                parameter.grad.copy_(processes.mean(parameter.grad))


_watches: weakref.WeakSet[LoopWatch] = weakref.WeakSet()
"""All that watch now; a stage that is forgotten leaves by itself."""
_listening: list[Any] = []


def _listen() -> None:
    """Ask torch, once in a process, to tell us of every optimizer's step.

    One pair of hooks for all stages: a hook that went with its stage could go while torch walks through them.
    """
    if not _listening:
        _listening.append(register_optimizer_step_pre_hook(_before))
        _listening.append(register_optimizer_step_post_hook(_after))


def _before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """A step with a closure computes its gradients inside: what has to happen between the backward pass and the step
    then happens at the end of the closure (``optimizer.step(closure)``, as PyTorch Lightning calls every step)."""
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    if closure is None:
        _tell_of_step(optimizer)
        return None

    def watched_closure() -> Any:
        found = closure()
        _tell_of_step(optimizer)
        return found

    if "closure" in kwargs:
        return args, {**kwargs, "closure": watched_closure}
    return (args[0], watched_closure, *args[2:]), kwargs


def _tell_of_step(optimizer: torch.optim.Optimizer) -> None:
    for watch in list(_watches):
        watch._on_step(optimizer)


def _after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for watch in list(_watches):
        watch._on_stepped(optimizer)
