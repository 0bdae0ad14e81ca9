"""What a run measures of the dense network."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from rbprune.methods.loss_check import LossCheck
from rbprune.settings.sections import RuntimeSettings
from rbprune.train.budget import CHECK_BATCHES, forward_cost
from rbprune.train.dense import CHECK, check_batches, score_dense
from rbprune.train.engine import Engine
from rbprune.train.evaluate import Mistakes, Score
from rbprune.train.state import RunData, RunState
from rbprune.train.stream import LoaderStream
from tests.networks import stripes
from tests.train.small import STEPS, small_runner


def test_the_batches_are_always_the_same_and_few() -> None:
    images, labels = stripes(200)
    asked = []

    class Stream(LoaderStream):
        def epoch(self, number: int, start: int = 0):  # type: ignore[no-untyped-def]
            asked.append(number)
            return super().epoch(number, start)

    stream = Stream([(images[i : i + 20], labels[i : i + 20]) for i in range(0, 200, 20)], 200)
    engine = Engine(RuntimeSettings())
    first, again = check_batches(stream, engine, 3), check_batches(stream, engine, 3)
    assert len(first) == CHECK_BATCHES
    assert asked == [CHECK, CHECK]
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again, strict=True))


def test_a_batch_of_one_example_is_left_out_unless_there_are_no_others() -> None:
    images, labels = stripes(9)
    engine = Engine(RuntimeSettings())
    batches = [(images[:8], labels[:8]), (images[8:], labels[8:])]
    assert [len(y) for _, y in check_batches(LoaderStream(batches, 9), engine, 0)] == [8]
    assert [len(y) for _, y in check_batches(LoaderStream(batches[1:], 1), engine, 0)] == [1]


def test_a_run_measures_the_dense_network_once_and_books_it() -> None:
    runner = small_runner({"prune": {"price": None}, "finetune": {"epochs": 0}})
    runner.measure_dense()
    stream = runner.data.train(16)
    batches = check_batches(stream, runner.engine, 0)
    likelihood = runner.pruner.likelihood
    assert likelihood is not None
    loss, explained = LossCheck(batches, F.cross_entropy, likelihood).look(runner.model)
    assert (runner.state.dense_loss, runner.state.explained) == (loss, explained)
    assert runner.state.cost["prune"] == pytest.approx(forward_cost(STEPS, STEPS))
    price = runner.settings.prune.price
    assert price is not None and explained is not None
    assert price.nats_per_example == pytest.approx(0.87 * explained, rel=0.01)
    runner.measure_dense()
    assert runner.state.cost["prune"] == pytest.approx(forward_cost(STEPS, STEPS)), (
        "what is known is not measured again"
    )


def test_the_dense_network_is_scored_on_validation_and_test_data_each_once() -> None:
    asked: list[object] = []

    def score(stream: object) -> Score:
        asked.append(stream)
        return Score(12.5, "error", None, Mistakes(8, (3,), 1))

    images, labels = stripes(8)
    val, test = LoaderStream([(images, labels)]), LoaderStream([(images, labels)])
    state = RunState()
    score_dense(RunData(train=lambda size: val, val=val, test=test), state, score)
    assert asked == [test, val]
    assert (state.error_before, state.val_error_before) == (12.5, 12.5)
    assert state.mistakes_before == {"examples": 8, "wrong": [3], "order": 1}
    asked.clear()
    score_dense(RunData(train=lambda size: val, val=val, test=val), RunState(), score)
    assert asked == [val], "the same data are not looked at twice"
    score_dense(RunData(train=lambda size: val), RunState(), score)
    assert asked == [val]
