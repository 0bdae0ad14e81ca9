"""The user's own data: a function that returns a ``Data``, or two data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from rbprune.data.dataset import DatasetSource, as_pair, seeded
from rbprune.data.source import Data, Skipped, check_labels
from rbprune.errors import CorruptError, DataError
from rbprune.utils.imports import find


def read_user(spec: str, path: str | Path | None, workers: int, skipped: Skipped | None = None) -> Data:
    """Call ``factory(path)``, which returns a ``Data`` or a pair (training, test) of map-style data sets.

    The sets of a pair raise ``rbprune.errors.CorruptError`` for an example that may be left out into ``skipped``.

    A pair says nothing about evaluating without augmentation: return a ``Data`` whose training source is
    ``DatasetSource(dataset, evaluation=...)`` where the training transform is random.
    """
    given = find(spec, error=DataError, installed=False)(path)
    if isinstance(given, Data):
        return given
    if not (isinstance(given, tuple) and len(given) == 2 and all(hasattr(d, "__getitem__") for d in given)):
        found = f"a tuple of {len(given)}" if isinstance(given, tuple) else type(given).__name__
        raise DataError(f"{spec} returned {found}; return an rbprune.data.Data or (train_dataset, test_dataset)")
    labels = [_labels(dataset) for dataset in given]
    classes = _classes(spec, given[0], labels)
    for part, y in zip(("training", "test"), labels, strict=True):
        if y is not None:
            check_labels(y, classes, f"{spec}, {part} set")
    train, test = (
        DatasetSource(dataset, workers, labels=y, classes=classes, skipped=skipped)
        for dataset, y in zip(given, labels, strict=True)
    )
    return Data(train, None, test, classes, _shape(spec, given[0], skipped is not None), skipped)


def _labels(dataset: Dataset[Any]) -> Tensor | None:
    """The class numbers of all examples, where the data set holds them without being read."""
    labels = dataset.tensors[-1] if isinstance(dataset, TensorDataset) else getattr(dataset, "targets", None)
    if not isinstance(labels, Tensor | list | tuple | np.ndarray):
        return None
    try:
        labels = torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError):  # such as names or boxes
        return None
    return labels.long() if labels.ndim == 1 and not labels.is_floating_point() else None


def _classes(spec: str, dataset: Dataset[Any], labels: list[Tensor | None]) -> int:
    """The number of classes: what the data set says itself, or else one more than the largest label."""
    named = getattr(dataset, "classes", None)
    if named is not None:
        return named if isinstance(named, int) else len(named)
    known = [int(y.max()) + 1 for y in labels if y is not None and len(y)]
    if len(known) == len(labels):
        return max(known)
    raise DataError(
        f"{spec}: the number of classes is unknown; give its data sets an attribute 'targets' (a number per example) "
        "or 'classes' (a name per class, or how many), or return an rbprune.data.Data"
    )


def _shape(spec: str, dataset: Dataset[Any], skip: bool) -> tuple[int, ...]:
    """The shape of the first training example, which must be a tensor that a network can take."""
    x = _first(spec, dataset, skip)
    if not isinstance(x, Tensor):
        raise DataError(f"{spec}: x of the first training example is {type(x).__name__}; return a tensor")
    if x.is_floating_point() and x.dtype != torch.float32:
        raise DataError(f"{spec}: x of the first training example is {x.dtype}; convert it with .float()")
    return tuple(x.shape)


def _first(spec: str, dataset: Any, skip: bool) -> Any:
    """x of the first training example, or with ``skip`` of the first that is not corrupt."""
    for index in range(len(dataset) if skip else 1):
        try:
            with seeded(0):
                example = dataset[index]
            return as_pair(example, f"{spec}: training example {index}")[0]
        except DataError as error:
            if not (skip and isinstance(error, CorruptError)):
                raise
        except Exception as cause:
            raise DataError(f"{spec}: the first training example fails: {type(cause).__name__}: {cause}") from cause
    raise DataError(f"{spec}: every training example is corrupt; check data.path")
