"""Holding a pruned network to what its folder says of it: its error and its cost, counted anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch.nn.functional as F

from rbprune import models
from rbprune.errors import ConfigError
from rbprune.export.network import PrunedNetwork
from rbprune.graph import trace
from rbprune.runs.build import EVALUATION_BATCH
from rbprune.settings.sections import RuntimeSettings
from rbprune.train.engine import Engine
from rbprune.train.evaluate import evaluate
from rbprune.train.stream import SourceStream
from rbprune.utils.names import shown
from rbprune.utils.numbers import as_number

SAME_ERROR = 0.05
"""Points: other processors round differently, and of 10,000 images a handful may tip over."""


@dataclass(frozen=True)
class Evaluation:
    """What a pruned network does, beside what its folder says."""

    error: float
    """Top-1 error on the test data, in per cent."""
    examples: int
    macs: int
    params: int
    macs_ratio: float
    """MACs of the dense network over those of this one; likewise of parameters."""
    params_ratio: float
    claimed: dict[str, float]
    """The same quantities as far as the folder names them: error, macs, params."""

    @property
    def differences(self) -> list[str]:
        """In words, what is not as the folder says; empty where everything is."""
        found = []
        claim = self.claimed.get("error")
        if claim is not None and abs(claim - self.error) > SAME_ERROR:
            found.append(f"the folder says an error of {claim:.2f} %, and it is {self.error:.2f} %")
        for name, count in (("macs", self.macs), ("params", self.params)):
            claim = self.claimed.get(name)
            if claim is not None and claim != count:
                found.append(f"the folder says {int(claim):,} {name}, and there are {count:,}")
        return found

    def as_dict(self) -> dict[str, Any]:
        """The fields and the differences as plain values."""
        return asdict(self) | {"differences": self.differences}


def evaluate_network(network: PrunedNetwork) -> Evaluation:
    """Count the errors of ``network`` on the test data, its MACs and its parameters.

    The error is that of the model in its own precision, as at the end of a run.
    """
    source = network.load_data()
    test = SourceStream(source.test, EVALUATION_BATCH, train=False)
    score = evaluate(Engine(RuntimeSettings()), network.model, test, F.cross_entropy)
    if score.mistakes is None:
        raise ConfigError("only classifiers are evaluated here, and the targets of this data are no classes")
    x = models.example_input(network.name, network.model, network.input_shape or source.shape)
    dense, pruned = trace(models.build(network.name, classes=network.classes), x), trace(network.model, x)
    return Evaluation(
        error=score.value,
        examples=score.mistakes.examples,
        macs=pruned.macs(),
        params=pruned.params(),
        macs_ratio=dense.macs() / pruned.macs(),
        params_ratio=dense.params() / pruned.params(),
        claimed=_claims(network.summary),
    )


def _claims(summary: Mapping[str, Any]) -> dict[str, float]:
    """What a folder says of its network, as far as it says something; a claim that is no number is refused."""
    fields = {"error": "error_after", "macs": "macs_after", "params": "params_after"}
    said = {name: summary[field] for name, field in fields.items() if summary.get(field) is not None}
    found = {name: number for name, value in said.items() if (number := as_number(value)) is not None}
    if wrong := [name for name in said if name not in found]:
        raise ConfigError(
            f"the folder says {fields[wrong[0]]} = {shown(said[wrong[0]])}, which is no number; take it out, or get "
            "the folder anew"
        )
    return found
