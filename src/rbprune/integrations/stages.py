"""The stages of a pruner inside a training loop that belongs to somebody else: Lightning's, Hugging Face's, any."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from rbprune.errors import ConfigError, LoopError
from rbprune.graph import Plan
from rbprune.graph.cost import known_costs
from rbprune.integrations.penalty import HiddenPenalty
from rbprune.methods import Stage, StageResult
from rbprune.methods.ending import AT_REST, FEWEST, STAGE_STEPS, Settling, StageEnding
from rbprune.pruner import DenseMeasures, Loss, Pruner

MOST_IDLE = 10
"""So many batches in a row may go by without a step of the network's optimizer."""
FAR = 0.01
"""A loss that differs by this part from that of ``loss_fn`` is another loss."""


class HostedStages:
    """Prunes a network while somebody else's loop trains it.

    Noise comes by hooks on the network, the divergence by a ``HiddenPenalty`` on its outputs, and what has to happen
    around an optimizer's step by torch's own hooks. The loop has to call ``begin`` before the first step, ``step_done``
    after every step, and ``leave`` when it ends.

    Args:
        model: The network, as the loop calls it.
        example_inputs: As ``Pruner`` takes them.
        dataset_size: The number of training examples.
        loss_fn: The loss of the loop in terms of the network's outputs and the targets.
        steps: How many training steps a stage takes at most.
        select: Finds in what the network returns the outputs that ``loss_fn`` takes; by default all of it.
        targets_of: Finds the targets in the named arguments of a call, where the loop does not set ``targets``.
        changes: Settings of pruning by name, as ``Pruner`` takes them.
    """

    def __init__(
        self,
        model: nn.Module,
        example_inputs: Any,
        *,
        dataset_size: int,
        loss_fn: Loss | None = None,
        steps: int = STAGE_STEPS,
        select: Callable[[Any], Any] | None = None,
        targets_of: Callable[[dict[str, Any]], Any] | None = None,
        **changes: Any,
    ) -> None:
        if steps < FEWEST:
            raise ConfigError(f"steps = {steps}: a stage needs at least {FEWEST} training steps to learn anything")
        self.model, self.dataset_size, self.steps, self._select = model, dataset_size, steps, select
        self.stage: Stage | None = None
        """The stage in progress."""
        self.number = 0
        """The number of the stage in progress, or of the next one."""
        self.results: list[StageResult] = []
        """What the stages have come to so far."""
        self.targets: Any = None
        """The targets of the batch that is trained on, where the loop has them: it sets them before the forward."""
        self._targets_of = targets_of
        self.tell: Callable[[str], None] = lambda message: warnings.warn(message, stacklevel=3)
        self.first_outputs: Any = None
        """What the network gave, detached, in the first training pass of all, until somebody takes it."""
        self.measured: DenseMeasures | None = None
        """What was measured of the dense network."""
        self._batches: list[tuple[Any, Any]] = []
        self._asking, self._whole = False, None
        self._handles: list[RemovableHandle] = []
        self._selects = None if select is None else model.register_forward_hook(lambda *seen: self._narrow(seen[-1]))
        with self._own_calls():
            self.pruner = Pruner(model, example_inputs, dataset_size=dataset_size, loss_fn=loss_fn, **changes)
        self.dense = {name: cost.total(self.pruner.graph) for name, cost in known_costs(self.pruner.graph).items()}
        """What the dense network costs, by name of the cost."""

    @property
    def plan(self) -> Plan:
        """What has been removed so far from the network as it was built."""
        return self.pruner.plan

    @property
    def is_done(self) -> bool:
        """Whether all stages are over, so that the loop only trains what is left."""
        return self.number >= len(self.pruner)

    def ratios(self) -> dict[str, float]:
        """How many times less the network costs now than before, by name of the cost."""
        return {
            name: self.dense[name] / cost.total(self.pruner.graph)
            for name, cost in known_costs(self.pruner.graph).items()
        }

    def measure(self, batches: Iterable[tuple[Any, Any]]) -> None:
        """Look at the dense network on some training batches, as ``Pruner.measure``; after ``restore_state`` only the
        batches are taken, for later cuts."""
        self._batches = list(batches)
        with self._own_calls():
            self.measured = self.pruner.measure(self._batches, self.measured)

    def begin(self, optimizer: torch.optim.Optimizer | None = None) -> list[StageResult]:
        """Begin the next stage; those that need no training are over at once. Returns the results of these."""
        began = len(self.results)
        while not self.is_done:
            if self.pruner.sites_left(self.number):
                with self._own_calls():
                    stage = self.pruner.stage(self.number)
                stage.tell = self.tell
                if stage.trains or stage.observes:
                    self._attend(stage)
                    return self.results[began:]
                with self._own_calls():
                    inputs = [inputs for inputs, _ in self._batches]
                    self.results.append(stage.finish(batches=inputs, optimizer=optimizer))
            self.number += 1
        self._take_off()
        return self.results[began:]

    def _attend(self, stage: Stage) -> None:
        """Hang on the network what a stage needs of every pass; after the hooks of the stage itself."""
        self.stage, self._step, self._idle = stage, 0, 0
        self._own = stage.optimizer(stage.settings.step_size)
        self._ending = StageEnding(stage, Settling.of(stage, AT_REST, FEWEST), self.steps)
        self._forwards = self._loop_steps = 0
        self._penalty: HiddenPenalty | None = None
        hook = self.model.register_forward_hook(
            lambda module, args, named, output: self._pass_on(module, named, output), with_kwargs=True
        )
        self._handles = [hook]

    def _narrow(self, output: Any) -> Any:
        """What the hooks of a stage, and the pruner itself, see of what the network returns."""
        if self._select is None or (self.stage is None and not self._asking):
            return None
        self._whole = None if self._asking else output
        return self._select(output)

    def _pass_on(self, module: nn.Module, named: dict[str, Any], output: Any) -> Any:
        """What the loop gets of a pass: all that the network returned, and in training the penalty behind it."""
        if self._asking or self.stage is None:
            return None
        whole, self._whole = (output, None) if self._select is None else (self._whole, None)
        if not (module.training and torch.is_grad_enabled()):
            return whole
        if self._penalty is None:  # once in a step, however many passes it makes
            self.targets = self.targets if self._targets_of is None else self._targets_of(named)
            with torch.autocast(next(module.parameters()).device.type, enabled=False):
                self._penalty = HiddenPenalty(self.stage.kl(self.targets))
            if self.number == 0 and self._step == 0 and isinstance(output, Tensor):
                self.first_outputs = output.detach()
                self._check_own_loss(whole)
        return self._penalty.join(whole)

    def step_done(self, optimizer: torch.optim.Optimizer) -> list[StageResult]:
        """The loop is done with a batch. Returns the results of stages that are over with it: their channels are gone,
        and the state of the optimizer has followed."""
        stage = self.stage
        if stage is None or not self._was_step(stage):
            return []
        self._penalty = None
        if self._own is not None:
            self._own.step()
            self._own.zero_grad(set_to_none=True)
        self._step += 1
        if not self._ending.is_over(self._step):
            return []
        began = len(self.results)
        with self._own_calls():
            self.results.append(stage.finish(optimizer=optimizer))
        self._let_go()
        self.number += 1
        self.begin(optimizer)
        return self.results[began:]

    def _was_step(self, stage: Stage) -> bool:
        """Whether the network was trained on the batch; refused where a stage would never learn anything."""
        forwards, self._forwards = self._forwards, stage.loop.forwards
        steps, self._loop_steps = self._loop_steps, stage.loop.steps
        if steps < stage.loop.steps:
            if self._penalty is not None and not self._penalty.is_paid:
                self._fail(
                    "the loss of this training step is not computed from what the network returned, so the divergence "
                    "had no part in it; compute the loss from the outputs of the network itself"
                )
            self._idle = 0
            return True
        self._penalty = None
        self._idle += 1
        called = forwards < stage.loop.forwards
        if self._idle >= MOST_IDLE or not (called or self._step):
            self._fail(
                f"{type(self.model).__name__} {'was' if called else 'was not'} called in training and made no step in "
                f"the last {self._idle} batches; name the module that the training step calls (as a module, not by its "
                "forward), and give its parameters to an optimizer of torch.optim"
            )
        return False

    def check_loss(self, shown: float) -> None:
        """Warn, once, where the loss of the first step is not what ``loss_fn`` says of the same outputs."""
        outputs, self.first_outputs = self.first_outputs, None
        if outputs is None or self.pruner.loss_fn is None or self.targets is None:
            return
        wanted = float(self.pruner.loss_fn(outputs, self.targets))
        if abs(shown - wanted) > FAR * max(abs(shown), abs(wanted)):
            self.tell(
                f"the training loss is {shown:.4g}, and loss_fn gives {wanted:.4g} for the same outputs and targets: "
                "channels are judged and cuts are measured by loss_fn, so give the one that is trained"
            )

    def _check_own_loss(self, whole: Any) -> None:
        """Compare the loss that the network itself computes, where it does, with ``loss_fn``."""
        loss = whole.get("loss") if hasattr(whole, "get") else None
        if isinstance(loss, Tensor):
            self.check_loss(float(loss.detach()))

    def leave(self) -> None:
        """The loop has ended: nothing of a stage stays on the network. Warns of stages that were not reached."""
        if self.stage is not None:
            names = ", ".join(self.stage.names)
            self.stage.abandon()
            self.tell(
                f"training ended after {self._step} steps of stage {self.number + 1} of {len(self.pruner)}: the noise "
                f"is off, and the channels of {names} stay, as do those of later stages; train longer"
            )
        self._let_go()
        self._take_off()

    def abandon(self) -> None:
        """Take everything off the network without a word: something else went wrong."""
        if self.stage is not None:
            self.stage.abandon()
        self._let_go()
        self._take_off()

    def _fail(self, what: str) -> None:
        names = ", ".join(self.stage.names) if self.stage is not None else ""
        self.abandon()
        raise LoopError(f"in the stage of {names}: {what}")

    def _let_go(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self.stage, self._whole, self.targets = [], None, None, None

    def _take_off(self) -> None:
        if self._selects is not None and self.stage is None:
            self._selects.remove()

    @contextmanager
    def _own_calls(self) -> Iterator[None]:
        """Inside, the network is called by the pruner, not by the loop."""
        before, self._asking = self._asking, True
        try:
            yield
        finally:
            self._asking = before
