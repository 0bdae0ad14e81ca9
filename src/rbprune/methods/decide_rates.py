"""What a pruner decides before the first stage: how rates are found."""

from __future__ import annotations

from rbprune.bayes.likelihood import Likelihood, SecondDerivative
from rbprune.methods.registry import Method
from rbprune.methods.settings import PruningSettings


def decide_rates(
    settings: PruningSettings, method: Method, classes: int | None, likelihood: Likelihood | None
) -> PruningSettings:
    """The way to the rates, where it was left open.

    ``rates`` stays "auto" where only a stage can find out: the loss is not known but the outputs may be scores of
    classes, or it is known but for whether it has a second derivative.
    """
    rates = settings.rates
    if rates == "auto":
        if not method.stage.infers_rates or settings.noise == "batch" or (likelihood is None and classes is None):
            rates = "adam"
        elif likelihood is not None and not isinstance(likelihood, SecondDerivative):
            rates = "fixed-point"
    decided = settings.model_copy(update={"rates": rates})
    return decided if rates == "auto" else decided.model_copy(update={"rate_lr": decided.step_size})
