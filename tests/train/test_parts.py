"""Learning rates, settling, streams, objectives."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, SubsetRandomSampler, TensorDataset

from rbprune.data import TensorSource
from rbprune.errors import DataError
from rbprune.settings.sections import OptimSettings, RuntimeSettings
from rbprune.train.engine import Engine
from rbprune.train.evaluate import evaluate
from rbprune.train.objective import data_loss, distillation, mistakes
from rbprune.train.optim import learning_rate
from rbprune.train.phase import Phase
from rbprune.train.settle import Settling
from rbprune.train.stream import LoaderStream, SourceStream


def test_the_papers_finetuning_halves_every_three_epochs() -> None:
    config = OptimSettings(epochs=10, lr=1e-4, decay="step", step_epochs=3, step_factor=0.5)
    rates = [learning_rate(config, epoch * 100, 1000, 100) for epoch in range(10)]
    assert rates == pytest.approx([1e-4] * 3 + [5e-5] * 3 + [2.5e-5] * 3 + [1.25e-5])


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_decay_starts_high_and_ends_near_nothing(decay: str) -> None:
    config = OptimSettings(epochs=1, lr=1.0, decay=decay, warmup=0.1)
    rates = [learning_rate(config, step, 1000, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(0.01)
    assert max(rates) == pytest.approx(1, abs=0.01)
    assert rates.index(max(rates)) in range(98, 102)
    assert rates[-1] < 0.002
    assert all(a >= b for a, b in pairwise(rates[101:]))


@pytest.mark.parametrize("number", [0, 7, 2**63 + 5])
def test_a_step_draws_the_numbers_that_its_seed_gives(number: int) -> None:
    engine = Engine(RuntimeSettings(accelerator="cpu"))
    torch.manual_seed(number)
    wanted = torch.rand(3), torch.randn(3), torch.randperm(5)
    engine.seed(number)
    drawn = torch.rand(3), torch.randn(3), torch.randperm(5)
    assert all(torch.equal(a, b) for a, b in zip(wanted, drawn, strict=True))


def test_settled_means_no_crossing_and_no_movement() -> None:
    settling = Settling(tolerance=0.01, interval=2, threshold=0.5)
    moving, crossing, still = torch.tensor([0.1, 0.9]), torch.tensor([0.1, 0.4]), torch.tensor([0.101, 0.401])
    assert not settling.settled(1, moving), "only every second step is looked at"
    assert not settling.settled(2, moving), "nothing to compare with yet"
    assert not settling.settled(4, crossing)
    assert not settling.settled(6, still), "once is not enough"
    assert not settling.settled(8, still)
    assert settling.settled(10, still)
    assert not settling.settled(12, moving), "and moving again is not settled"
    assert not Settling(0, 1, 0.5).settled(1, still)


def test_fine_tuning_draws_the_same_numbers_however_many_phases_came_before() -> None:
    one, many = (Phase(number, "finetune", OptimSettings(epochs=1, lr=0.1)) for number in (1, 15))
    assert one.salt == many.salt
    stages = [Phase(number, "prune", OptimSettings(epochs=1, lr=0.1), number).salt for number in range(40)]
    assert len({one.salt, Phase(0, "pretrain", OptimSettings(epochs=1, lr=0.1)).salt, *stages}) == 42


def test_slow_rates_are_not_at_rest_while_they_move() -> None:
    """Ten steps of Adam at 1e-3 move a rate by 0.01 at most, which is no rest."""
    settling = Settling(tolerance=0.01, interval=10, threshold=0.5, speed=1e-3)
    assert not any(settling.settled(step, torch.tensor([1e-3 * step])) for step in range(1, 200))
    assert any(settling.settled(step, torch.tensor([0.2])) for step in range(200, 260))


def source(count: int) -> TensorSource:
    images = torch.arange(count * 4, dtype=torch.uint8).view(count, 1, 2, 2)
    return TensorSource(images, torch.arange(count) % 3, mean=[0.5], std=[0.5])


def test_a_stream_repeats_itself_and_can_be_entered_anywhere() -> None:
    stream = SourceStream(source(50), 8, seed=1)
    assert (stream.size, stream.steps) == (50, 6), "an incomplete training batch is left out"
    whole = list(stream.epoch(3))
    assert len(whole) == 6
    tail = list(stream.epoch(3, start=4))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(whole[4:], tail, strict=True))
    assert not torch.equal(whole[0][0], next(iter(stream.epoch(4)))[0])
    held_out = SourceStream(source(50), 8, train=False)
    assert sum(len(y) for _, y in held_out.epoch(0)) == 50
    assert torch.equal(torch.cat([y for _, y in held_out.epoch(0)]), torch.arange(50) % 3)


def test_a_loader_is_taken_as_it_is() -> None:
    loader = DataLoader(TensorDataset(torch.randn(10, 2), torch.zeros(10)), batch_size=4)
    stream = LoaderStream(loader)
    assert (stream.size, stream.steps) == (10, 3)
    batches = [(torch.randn(4, 2), torch.zeros(4)), (torch.randn(3, 2), torch.zeros(3))]
    plain = LoaderStream(batches)
    assert (plain.size, plain.steps) == (7, 2)
    assert torch.equal(next(plain.epoch(0, start=1))[0], batches[1][0])
    with pytest.raises(DataError, match="yields no batch"):
        LoaderStream([])
    with pytest.raises(DataError, match=r"\(input, target\) pairs; this one gave Tensor"):
        list(LoaderStream([torch.zeros(2)], size=2).epoch(0))


def test_labels_out_of_range_are_named() -> None:
    with pytest.raises(DataError, match=r"batch 3 has label 12, but the model has 10 outputs \(labels 0\.\.9\)"):
        data_loss(F.cross_entropy, torch.zeros(2, 10), torch.tensor([1, 12]), "batch 3")
    with pytest.raises(DataError, match="the loss fails on batch 3"):
        data_loss(F.cross_entropy, torch.zeros(2, 10), torch.zeros(3, dtype=torch.long), "batch 3")


def test_distillation_is_zero_for_equals_and_matches_its_definition() -> None:
    a, b = torch.randn(5, 4), torch.randn(5, 4)
    assert float(distillation(a, a)) == pytest.approx(0, abs=1e-6)
    p, q = (b / 4).softmax(1), (a / 4).softmax(1)
    wanted = 16 * (p * (p / q).log()).sum(1).mean()
    torch.testing.assert_close(distillation(a, b), wanted)


def test_mistakes_are_counted_only_in_classification() -> None:
    outputs = torch.tensor([[1.0, 0], [0, 1]])
    found = mistakes(outputs, torch.tensor([0, 0]))
    assert found is not None
    assert found.tolist() == [False, True]
    assert mistakes(outputs, torch.zeros(2, 2)) is None
    assert mistakes(outputs, torch.zeros(2)) is None


def test_a_class_among_the_five_best_is_no_top5_mistake() -> None:
    outputs = torch.tensor([[float(c) for c in range(100)]] * 4)
    targets = torch.tensor([99, 95, 94, 0])
    top1, top5 = mistakes(outputs, targets), mistakes(outputs, targets, best=5)
    assert top1 is not None and top1.tolist() == [False, True, True, True]
    assert top5 is not None and top5.tolist() == [False, False, True, True]


@pytest.mark.parametrize(("classes", "expected"), [(100, 50.0), (99, None)])
def test_top5_error_is_reported_from_a_hundred_classes_on(classes: int, expected: float | None) -> None:
    stream = SourceStream(_ranked(classes, targets=[classes - 1, classes - 5, classes - 6, 0]), 3, train=False)
    score = evaluate(Engine(RuntimeSettings()), nn.Flatten(), stream, F.cross_entropy)
    assert score.value == 75.0
    assert score.top5 == expected


def _ranked(classes: int, targets: list[int]) -> TensorSource:
    """Images whose pixels, taken as outputs, rank the classes by their number."""
    images = torch.arange(classes, dtype=torch.uint8).view(1, 1, 1, classes).expand(len(targets), -1, -1, -1)
    return TensorSource(images.contiguous(), torch.tensor(targets), mean=[0.5], std=[0.5])


def test_a_loader_counts_what_its_sampler_draws() -> None:
    data = TensorDataset(torch.zeros(1000, 2), torch.zeros(1000))
    assert LoaderStream(DataLoader(data, batch_size=10)).size == 1000
    assert LoaderStream(DataLoader(data, batch_size=10, sampler=SubsetRandomSampler(range(100)))).size == 100
    shared = DistributedSampler(data, num_replicas=4, rank=0)
    assert LoaderStream(DataLoader(data, batch_size=10, sampler=shared)).size == 1000
    assert LoaderStream([(torch.zeros(3, 2), torch.zeros(3))] * 5).size == 15
