"""What two processes compute together is what one computes alone, whatever the size of a batch."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset

from rbprune.bayes.likelihood import Softmax
from rbprune.data import DatasetSource, TensorSource
from rbprune.errors import DataError
from rbprune.train.share import divide_batch, own_parts, weigh_loss
from rbprune.train.stream import SourceStream
from rbprune.utils.processes import own_rows
from tests.train.launch import TORCHRUN, Ended, execute

TOGETHER = """
import copy, functools, json, os, sys
from pathlib import Path
import torch, torch.distributed as dist, torch.nn.functional as F
from torch import nn
from rbprune import Price, Pruner
from rbprune.methods.curvature import RunningCurvature, Slopes, batch_moments
from rbprune.settings.sections import FinetuneSettings, PretrainSettings, PruneSettings, RuntimeSettings
from rbprune.train.engine import Engine
from rbprune.train.evaluate import evaluate
from rbprune.train.objective import distillation
from rbprune.train.phase import Phase, PhaseRun
from rbprune.train.share import divide_batch, weigh_loss
from rbprune.train.stream import LoaderStream, SourceStream
from rbprune.data import TensorSource
from rbprune.errors import RbpruneError
from rbprune.utils.processes import BatchShare

engine = Engine(RuntimeSettings(accelerator="cpu"))
rank, world = engine.rank, engine.world
found = {"world": world, "gradient": {}, "loss": {}, "curvature": {}}

def net():
    torch.manual_seed(0)
    first = nn.Conv2d(1, 6, 3, stride=2), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.ReLU()
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4))

def batch(size):
    torch.manual_seed(size)
    return torch.randn(size, 1, 9, 9), torch.randint(4, (size,))

def far(ours, theirs):
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))

def trained(name, phase, loss_fn, inputs, targets, whole, stage=None, teacher=None):
    "One step by all processes, and its distance from what the whole batch gives to one."
    model = net() if stage is None else stage.graph.model
    run = PhaseRun(phase, engine, model, LoaderStream([(inputs, targets)]), loss_fn, seed=1, stage=stage,
                   teacher=teacher)
    alone = copy.deepcopy(net())
    expected, mean = whole(alone)
    loss = list(run.run_epoch())[-1]
    wanted = torch.autograd.grad(expected, list(alone.parameters()))
    found["gradient"][name] = far([p.grad for p in model.parameters()], wanted)
    found["loss"][name] = abs(float(loss) - float(mean))

pretrain = Phase(0, "pretrain", PretrainSettings(epochs=1, lr=0.1))
weights, smooth = torch.tensor([1.0, 3.0, 0.5, 2.0]), 0.1
weighted = functools.partial(F.cross_entropy, weight=weights, ignore_index=0, label_smoothing=smooth)
losses = {"plain": F.cross_entropy, "weighted": weighted, "own": lambda z, y: F.multi_margin_loss(z, y) + (z**2).mean()}
for size in (1, 2, 3, 5, 8):
    inputs, targets = batch(size)
    for name, loss_fn in losses.items():
        if name == "weighted":
            targets = targets.clamp_min(1)
            targets[1:3] = 0  # of three, the second process has only ignored labels
        def whole(alone):
            loss = loss_fn(alone(inputs), targets)
            return loss, loss.detach()
        trained(f"{name} {size}", pretrain, loss_fn, inputs, targets, whole)
    teacher = net().requires_grad_(False)
    with torch.no_grad():
        teacher[0].weight.mul_(-1)
    def taught(alone):
        loss = F.cross_entropy(alone(inputs), targets)
        return 0.5 * loss + 0.5 * distillation(alone(inputs), teacher(inputs)), loss.detach()
    taught_phase = Phase(1, "finetune", FinetuneSettings(epochs=1, lr=0.1, distill=0.5))
    trained(f"taught {size}", taught_phase, F.cross_entropy, inputs, targets, taught, teacher=teacher)

# the penalty of a stage is added once, and its noise (here at its mean) does not change that
randn, torch.randn = torch.randn, lambda *shape, **given: torch.zeros(*shape)
found["rates"] = {}
for size in (1, 3, 8):
    torch.randn = randn
    inputs, targets = batch(size)
    torch.randn = lambda *shape, **given: torch.zeros(*shape)
    settings = PruneSettings(epochs=1, rates="adam", price=Price(nats=20), rate_lr=0.1, settle=0)
    def a_stage():
        return Pruner(net(), inputs[:1], dataset_size=100, settings=settings).stage(0, remember=False)
    stage, other = a_stage(), a_stage()
    run = PhaseRun(Phase(0, "prune", settings, 0), engine, stage.graph.model, LoaderStream([(inputs, targets)]),
                   F.cross_entropy, seed=1, stage=stage)
    alone = other.graph.model.train()
    expected = F.cross_entropy(alone(inputs), targets) + other.penalty()
    wanted = torch.autograd.grad(expected, [*alone.parameters(), other.factors.rate])
    list(run.run_epoch())
    found["rates"][size] = far([p.grad for p in (*stage.graph.model.parameters(), stage.factors.rate)], wanted)
    stage.abandon(), other.abandon()
torch.randn = randn

for size in (1, 2, 3, 7, 10):
    torch.manual_seed(size)
    left, right = torch.randn(size, 5), torch.randn(size, 5)
    part = divide_batch(left, right, rank, world, "it")
    for name, share in {"counted": BatchShare(part.examples, torch.tensor(world * part.examples / size)),
                        **({} if size == 1 else {"by number": None})}.items():
        moments = batch_moments(Slopes(part.inputs, part.targets), share, cross=True)
        squares = left * right
        gaps = [far([moments.mean], [squares.mean(0)]), far([moments.products], [left.T @ right / size])]
        gaps += [] if size == 1 else [far([moments.variance], [squares.var(0)])]
        assert moments.examples == size and (moments.variance is None) == (size == 1)
        found["curvature"][f"{name} {size}"] = max(gaps)

# a part whose mean was divided by other weights: its squares are in a unit of its own
torch.manual_seed(0)
counts, slopes = torch.tensor([0.0, 1.0, 1.0, 3.0, 2.0]).double(), torch.randn(5, 4).double()
own = divide_batch(slopes, counts, rank, world, "it")
whole = (slopes.square() * (5 * counts / counts.sum())[:, None])
mine = Slopes(*[own.inputs * (own.examples * own.targets / own.targets.sum()).sqrt()[:, None]] * 2)
share = BatchShare(own.examples, world * own.targets.sum() / counts.sum())
moments = batch_moments(mine, share, cross=True)
found["curvature"]["weighted"] = far([moments.mean, moments.variance], [whole.mean(0), whole.var(0)])

# evaluation: the same bits as alone, with batches that the processes cannot share evenly
torch.manual_seed(0)
images, labels = torch.randint(256, (23, 1, 9, 9), dtype=torch.uint8), torch.randint(4, (23,))
stream = SourceStream(TensorSource(images, labels, mean=[0.5], std=[0.5]), 4, train=False)
class Alone(Engine):
    rank, world = 0, 1
one = Alone(RuntimeSettings(accelerator="cpu"))
import rbprune.train.evaluate as module
plain, batches = module.gathered, LoaderStream(list(stream.epoch(0)))
together = [evaluate(engine, net(), each, F.cross_entropy) for each in (stream, batches)]
module.gathered = lambda value: [value]
assert all(score == evaluate(one, net(), stream, F.cross_entropy) for score in together)
assert together[0].mistakes.examples == 23 and together[0].mistakes.wrong
module.gathered = plain
# a loader that gives every process other batches
own = LoaderStream([(torch.full((4, 1, 9, 9), float(rank)), torch.zeros(4).long())], name="my_loader")
try:
    list(PhaseRun(pretrain, engine, net(), own, F.cross_entropy, seed=1).run_epoch())
except RbpruneError as error:
    found["other batches"] = str(error)
labels[5] = 9  # in the second batch, which the second process evaluates
try:
    evaluate(engine, net(), stream, F.cross_entropy)
except RbpruneError as error:
    found["refused"] = str(error)
Path(sys.argv[1], f"found-{rank}.json").write_text(json.dumps(found))
dist.destroy_process_group()
os._exit(0)  # what C++ does at the end aborts now and then in torch, with the group left: see rbprune.cli.app
"""
"""Computes the same by two processes together and by each alone, and notes how far they are apart."""


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("together")
    (folder / "together.py").write_text(TOGETHER)
    ended: Ended = execute(folder, *TORCHRUN, str(folder / "together.py"), str(folder))
    assert ended.code == 0, ended.text
    found = [json.loads((folder / f"found-{rank}.json").read_text()) for rank in (0, 1)]
    assert all(each["world"] == 2 for each in found)
    return found


@pytest.mark.parametrize("what", ["gradient", "loss", "rates", "curvature"])
def test_two_processes_compute_what_one_computes_on_batches_of_any_size(
    together: list[dict[str, Any]], what: str
) -> None:
    for found in together:
        assert found[what] and max(found[what].values()) < 1e-6, found[what]


def test_a_fault_that_one_process_finds_in_evaluation_is_told_by_all(together: list[dict[str, Any]]) -> None:
    assert [found["refused"] for found in together] == [together[0]["refused"]] * 2
    assert "evaluation batch 1 has label 9" in together[0]["refused"]


def test_a_loader_that_gives_every_process_other_batches_is_refused(together: list[dict[str, Any]]) -> None:
    for found in together:
        assert "my_loader gives process 1 another first batch than process 0" in found["other batches"]


def test_every_example_counts_in_one_process_and_those_without_any_have_a_stand_in() -> None:
    for whole in range(1, 9):
        parts = [(list(range(whole))[rows], count) for rows, count in (own_rows(whole, rank, 3) for rank in range(3))]
        assert sorted(i for rows, count in parts for i in rows[:count]) == list(range(whole))
        assert all(len(rows) == max(1, count) for rows, count in parts)


def test_structures_are_divided_and_numbers_without_rows_go_to_all() -> None:
    inputs = {"x": torch.arange(5), "scale": torch.tensor(2.0)}
    part = divide_batch(inputs, torch.arange(5) * 10, 1, 2, "batch 0")
    assert part.inputs["x"].tolist() == [1, 3] and float(part.inputs["scale"]) == 2
    assert part.targets.tolist() == [10, 30] and (part.whole, part.examples) == (5, 2)
    alone = divide_batch(inputs, "text", 0, 1, "batch 0")
    assert alone.inputs is inputs and alone.examples == 5


def test_a_tensor_with_other_rows_than_examples_is_refused_by_its_shape() -> None:
    with pytest.raises(DataError, match=r"batch 3 has 4 examples and a tensor of shape \(9, 2\).*2 processes"):
        divide_batch((torch.zeros(4, 1), torch.zeros(9, 2)), torch.zeros(4), 0, 2, "batch 3")


def test_alone_a_loss_is_weighed_by_nothing() -> None:
    loss = torch.tensor(3.0, requires_grad=True)
    weighed = weigh_loss(loss, torch.zeros(4).long(), 4, Softmax())
    assert weighed.loss is loss and weighed.share is None and weighed.by_examples == 1.0


def test_what_a_cross_entropy_is_divided_by_is_what_torch_divides_by() -> None:
    torch.manual_seed(0)
    weight, scores = torch.tensor([1.0, 3.0, 0.5]), torch.randn(6, 3, 2)
    targets = torch.randint(3, (6, 2))
    targets[0, 1] = -100
    for given in (None, weight):
        summed = F.cross_entropy(scores, targets, weight=given, reduction="sum")
        divisor = Softmax(weight=given).divisor(targets)
        assert divisor is not None
        torch.testing.assert_close(summed / divisor, F.cross_entropy(scores, targets, weight=given))
    assert Softmax().divisor(scores.softmax(1)) is None and Softmax().divisor(None) is None


def test_parts_of_an_epoch_are_read_by_their_process_alone_where_the_source_can() -> None:
    read: list[int] = []

    class Noting(Dataset[Any]):
        def __len__(self) -> int:
            return 7

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            read.append(index)
            return torch.tensor([float(index)]), index % 2

    stream = SourceStream(DatasetSource(Noting()), 3, train=False)
    parts = {rank: list(own_parts(stream, 0, 1, rank, 2)) for rank in (0, 1)}
    assert sorted(read) == [3, 4, 5, 6, 6], "from the second batch on, with a stand-in for the last one"
    assert [(part.whole, part.examples, part.inputs.flatten().tolist()) for part in parts[1]] == [
        (3, 1, [4.0]),
        (1, 0, [6.0]),
    ]
    whole = SourceStream(
        TensorSource(torch.zeros(7, 1, 1, 1, dtype=torch.uint8), torch.arange(7), mean=[0], std=[1]), 3
    )
    divided = [list(own_parts(whole, 0, 0, rank, 2)) for rank in (0, 1)]
    assert [[part.examples for part in each] for each in divided] == [[2, 2], [1, 1]]
    both = torch.cat([part.targets for each in divided for part in each])
    assert sorted(both.tolist()) == sorted(torch.cat([y for _, y in whole.epoch(0)]).tolist())
