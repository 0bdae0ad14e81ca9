"""What the callbacks for other people's trainers share: what they are told, and the stages once training has begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from rbprune.errors import ConfigError
from rbprune.graph import Plan
from rbprune.integrations.host import refuse_compiled
from rbprune.integrations.stages import HostedStages
from rbprune.integrations.state import save_network
from rbprune.methods import StageResult
from rbprune.pruner import Loss


class HostedCallback:
    """Holds the arguments that do not depend on whose trainer it is, and ``HostedStages`` from its beginning on.

    To be named before the trainer's own class of callbacks, which has ``__init__`` without arguments.
    """

    begins_with: ClassVar[str]
    """The call of the trainer's that begins pruning."""

    def __init__(
        self,
        example_inputs: Any,
        loss_fn: Loss | None,
        dataset_size: int | None,
        steps: int,
        measure: int,
        settings: dict[str, Any],
    ) -> None:
        super().__init__()
        self.example_inputs, self.loss_fn, self.dataset_size = example_inputs, loss_fn, dataset_size
        self.steps, self.measure, self.settings = steps, measure, settings
        self.stages: HostedStages | None = None
        """The stages, once training has begun."""

    @property
    def plan(self) -> Plan:
        """What has been removed so far from the network as it was built."""
        return self._begun().plan

    @property
    def results(self) -> list[StageResult]:
        """What each stage came to."""
        return self._begun().results

    @property
    def is_done(self) -> bool:
        """Whether all stages are over."""
        return self._begun().is_done

    def save(self, folder: str | Path) -> Path:
        """Write the pruned network for ``rbprune.load(folder, FreshNetwork())``."""
        return save_network(self._begun(), folder)

    def _begun(self) -> HostedStages:
        if self.stages is None:
            raise ConfigError(f"nothing has been pruned yet: {type(self).__name__} begins with {self.begins_with}")
        return self.stages

    def _host(self, network: nn.Module, dataset_size: int, **how: Any) -> HostedStages:
        """The stages in this network; ``how`` is what else ``HostedStages`` has to be told by this trainer."""
        refuse_compiled(network)
        return HostedStages(
            network,
            self.example_inputs,
            dataset_size=dataset_size,
            loss_fn=self.loss_fn,
            steps=self.steps,
            **how,
            **self.settings,
        )

    def _tell_if_short(self, left: int, remedy: str) -> None:
        """Warn where the trainer makes fewer steps than the stages may take."""
        stages = self._begun()
        most = (len(stages.pruner) - stages.number) * self.steps
        if left < most:
            stages.tell(
                f"the stages may take {most} training steps, and Trainer makes {left}: the last ones may not be "
                f"reached; {remedy}, or lower steps"
            )
