"""The network that a search starts from: what it costs and gets wrong, before anything is pruned."""

from __future__ import annotations

from rbprune.runs.point import PrunedPoint, read_mistakes
from rbprune.train.dense import score_dense
from rbprune.train.evaluate import Score, evaluate
from rbprune.train.runner import Runner
from rbprune.train.state import RunState
from rbprune.train.stream import Stream

DENSE = "dense"
"""The path of the dense network."""


def dense_point(runner: Runner) -> PrunedPoint:
    """Evaluate the network of a runner that has not begun, on its validation and test data."""
    state = RunState()
    runner.engine.place(runner.model)

    def score(stream: Stream) -> Score:
        found = evaluate(runner.engine, runner.model, stream, runner.loss_fn)
        state.metric = found.metric
        return found

    score_dense(runner.data, state, score)
    mistakes = {} if state.mistakes_before is None else {"before": state.mistakes_before}
    return PrunedPoint(
        DENSE,
        dict(runner.dense),
        dict.fromkeys(runner.dense, 1.0),
        state.metric,
        state.val_error_before,
        state.error_before,
        mistakes=read_mistakes(mistakes, "before"),
    )
