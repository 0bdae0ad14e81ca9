"""Holding a pruned network to what its folder says of it: its error and its cost, counted anew."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch.nn.functional as F

from rbprune import models
from rbprune.errors import ConfigError
from rbprune.export.network import PrunedNetwork
from rbprune.graph import trace
from rbprune.runs.build import EVALUATION_BATCH, load_settings_data
from rbprune.settings.sections import RuntimeSettings
from rbprune.train.engine import Engine
from rbprune.train.evaluate import evaluate
from rbprune.train.stream import SourceStream

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
    if network.data is None:
        raise ConfigError("the folder does not say which data it is of; give it with --set data.name=NAME")
    source = load_settings_data(network.data)
    test = SourceStream(source.test, EVALUATION_BATCH, train=False)
    score = evaluate(Engine(RuntimeSettings()), network.model, test, F.cross_entropy)
    if score.mistakes is None:
        raise ConfigError("only classifiers are evaluated here, and the targets of this data are no classes")
    x = models.example_input(network.name, network.model, network.input_shape or source.shape)
    dense, pruned = trace(models.build(network.name, classes=network.classes), x), trace(network.model, x)
    fields = {"error": "error_after", "macs": "macs_after", "params": "params_after"}
    known = {name: network.summary.get(field) for name, field in fields.items()}
    return Evaluation(
        error=score.value,
        examples=score.mistakes.examples,
        macs=pruned.macs(),
        params=pruned.params(),
        macs_ratio=dense.macs() / pruned.macs(),
        params_ratio=dense.params() / pruned.params(),
        claimed={name: value for name, value in known.items() if value is not None},
    )
