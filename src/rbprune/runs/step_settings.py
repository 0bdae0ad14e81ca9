"""The settings of the runs that a search for the smallest network within an error consists of."""

from __future__ import annotations

from rbprune.errors import ConfigError
from rbprune.graph.cost import MACS, Cost
from rbprune.settings.sections import FinetuneSettings, PretrainSettings, PruneSettings, Settings

RECOVERY_SHARE = 0.25
"""What a step of a search takes of the ``finetune.epochs`` that were asked for; all of them follow at the end."""


def searches(settings: Settings) -> bool:
    """Whether the settings ask for the smallest network within an error, and not for one run."""
    return settings.task == "prune" and settings.prune.max_error_rise is not None


def search_cost(settings: Settings) -> Cost:
    """What a search makes smaller: the cost that the price follows, by default MACs."""
    price = settings.prune.price
    return MACS if price is None else price.cost


def settings_of_step(settings: Settings, cost: Cost, ratio: float) -> Settings:
    """One step: so many times less than the network that it starts from, and a part of the recovery."""
    if settings.budget is not None:
        raise ConfigError(
            f"budget = {settings.budget:g} is what one run may take, and prune.max_error_rise takes as many steps as "
            "it needs: leave out the budget, and say finetune.epochs (of which each step takes a quarter)"
        )
    prune = settings.prune.changed(max_error_rise=None, **{f"{cost.name}_ratio": ratio})
    finetune = settings.finetune
    if finetune.epochs is not None:
        finetune = finetune.changed(epochs=RECOVERY_SHARE * finetune.epochs)
    return settings.model_copy(update={"prune": prune, "finetune": finetune})


def settings_of_recovery(settings: Settings, decided: FinetuneSettings) -> Settings | None:
    """The fine-tuning at the end, as a run that only trains; None where there is nothing to train.

    ``decided`` is the fine-tuning of a step, which knows its length where the settings left it open.
    """
    epochs = decided.epochs if settings.finetune.epochs is None else settings.finetune.epochs
    if not epochs:
        return None
    fields = {name: value for name, value in settings.finetune.model_dump().items() if name in _TRAINING}
    train = PretrainSettings(**{**fields, "epochs": epochs})
    return settings.model_copy(
        update={"task": "train", "pretrain": train, "prune": PruneSettings(), "budget": None, "pruning_share": None}
    )


_TRAINING = frozenset(PretrainSettings.model_fields)
