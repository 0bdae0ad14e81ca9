"""Error of a model on a stream."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from rbprune.bayes.likelihood import Softmax, likelihood_of
from rbprune.errors import DataError, RbpruneError
from rbprune.pruner import Loss
from rbprune.train.engine import Engine
from rbprune.train.objective import check_labels_of, is_classification, mistakes
from rbprune.train.stream import Stream, count_examples, own_batches
from rbprune.utils.checked_calls import data_loss, outputs_of
from rbprune.utils.finite import check_evaluated, check_finite
from rbprune.utils.modes import evaluating
from rbprune.utils.processes import gathered

MANY_CLASSES = 100
"""From here on the top-5 error is reported too."""


@dataclass(frozen=True)
class Mistakes:
    """Which examples a classifier got wrong, so that two networks can be compared example by example."""

    examples: int
    wrong: tuple[int, ...]
    """Their places in the order in which the examples came."""
    order: int
    """A checksum of the classes in that order: other examples, or the same in another order, have another one."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self) | {"wrong": list(self.wrong)}

    @staticmethod
    def is_valid(fields: object) -> bool:
        """Whether these are what ``to_dict`` gives: whole numbers, and places of examples that there are.

        >>> Mistakes.is_valid({"examples": 4, "wrong": [1, 3], "order": 7}), Mistakes.is_valid({"examples": 4})
        (True, False)
        """
        if not (isinstance(fields, dict) and fields.keys() == {"examples", "wrong", "order"}):
            return False
        count, wrong, order = fields["examples"], fields["wrong"], fields["order"]
        if not (type(count) is int and type(order) is int and isinstance(wrong, list)):
            return False
        return all(type(place) is int and 0 <= place < count for place in wrong)

    @staticmethod
    def from_dict(fields: dict[str, Any]) -> Mistakes:
        """Read what ``to_dict`` gave.

        >>> Mistakes.from_dict(Mistakes(4, (1, 3), 7).to_dict())
        Mistakes(examples=4, wrong=(1, 3), order=7)
        """
        return Mistakes(fields["examples"], tuple(fields["wrong"]), fields["order"])


class Score(NamedTuple):
    """How wrong a model is, and in which unit: an ``error`` in per cent, or a mean ``loss``."""

    value: float
    metric: Literal["error", "loss"]
    top5: float | None = None
    mistakes: Mistakes | None = None
    """Of a classifier, the examples it got wrong."""


class BatchScore(NamedTuple):
    """What one batch adds to a score, as plain values that processes can send each other."""

    number: int
    size: int
    """Examples that count."""
    wrong: float
    """The sum over them of errors in per cent, or of losses."""
    far_off: int | None
    """Those whose class is not among the best five; None where there are not so many classes."""
    places: tuple[int, ...] = ()
    """Those that are wrong, in their order within the batch."""
    labels: bytes | None = None
    """The classes in that order; None for anything but classification."""


def evaluate(engine: Engine, model: nn.Module, stream: Stream, loss_fn: Loss) -> Score:
    """Top-1 error in per cent (and top-5 with 100 classes or more); for anything but classification, the mean loss.

    Always in the model's own precision. Of several processes each takes every so many batches, and all come to the
    score that one would come to, to the bit; an error in one of them is raised in all.
    """
    likelihood = likelihood_of(loss_fn)
    ignored = likelihood.ignore_index if isinstance(likelihood, Softmax) else None
    found: list[BatchScore] = []
    failed: RbpruneError | None = None
    with evaluating(model), torch.no_grad():
        try:
            for number, (inputs, targets) in own_batches(stream, engine.rank, engine.world):
                batch = engine.put(inputs), engine.put(targets)
                found.append(_score_batch(model, batch, loss_fn, ignored, number))
        except RbpruneError as error:
            failed = error
    everything = gathered((found, failed))
    for _, fault in everything:
        if fault is not None:
            raise fault
    return _together(sorted((batch for part, _ in everything for batch in part), key=lambda batch: batch.number))


def _score_batch(
    model: nn.Module, batch: tuple[Any, Any], loss_fn: Loss, ignored: int | None, number: int
) -> BatchScore:
    inputs, targets = batch
    where = f"evaluation batch {number}"
    outputs = outputs_of(model, inputs, where)
    check_evaluated(model, inputs, outputs, targets, where)
    if is_classification(outputs, targets):
        check_labels_of(outputs, targets, where, ignored)
        seen = targets != (-1 if ignored is None else ignored)
        outputs, targets = outputs[seen], targets[seen]
    errors = mistakes(outputs, targets)
    size = len(targets) if isinstance(targets, Tensor) else count_examples(inputs, targets) or 1
    if errors is None:
        loss = float(data_loss(loss_fn, outputs, targets, where))
        check_finite(loss, inputs, where)
        return BatchScore(number, size, loss * size, None)
    missed = mistakes(outputs, targets, best=5) if outputs.shape[1] >= MANY_CLASSES else None
    far_off = None if missed is None else int(missed.sum())
    labels = targets.cpu().long().numpy().tobytes()
    places = tuple(errors.nonzero().flatten().tolist())
    return BatchScore(number, size, 100.0 * float(errors.sum()), far_off, places, labels)


def _together(batches: list[BatchScore]) -> Score:
    """The score of all batches in their order."""
    count, order, places = 0, 0, []
    for batch in batches:
        places += [place + count for place in batch.places]
        order = order if batch.labels is None else zlib.crc32(batch.labels, order)
        count += batch.size
    if not count:
        raise DataError("no example could be read for evaluation: all were left out as corrupt; check data.path")
    metric: Literal["error", "loss"] = "error" if all(batch.labels is not None for batch in batches) else "loss"
    mistaken = Mistakes(count, tuple(places), order) if metric == "error" else None
    many = batches[-1].far_off is not None
    top5 = 100.0 * sum(batch.far_off or 0 for batch in batches) / count if many else None
    return Score(sum(batch.wrong for batch in batches) / count, metric, top5, mistaken)
