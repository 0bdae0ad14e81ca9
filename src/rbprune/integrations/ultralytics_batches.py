"""The training batches and the training loss of an Ultralytics network, as ``rbprune.prune`` takes them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rbprune.errors import ConfigError, DataError, first_line

_NOT_HERE = ("model", "task", "data", "mode", "epochs", "resume", "multi_scale", "quantize", "compile")
"""Arguments of Ultralytics that say nothing about the batches or the loss, or would change the network under us."""


def training_arguments(yolo: Any, data: str, given: Mapping[str, Any]) -> Any:
    """The settings of ``yolo.train(data=data, **given)`` as Ultralytics keeps them: what it remembers of the network
    (``imgsz``), then what is given, over its defaults."""
    wrong = sorted(set(given) & set(_NOT_HERE))
    if wrong:
        raise ConfigError(
            f"prune_yolo does not take {wrong[0]} = {given[wrong[0]]!r}: it takes the arguments of Ultralytics that "
            "shape the batches and the loss (imgsz, batch, workers, fraction, mosaic, box, cls, dfl, ...)"
        )
    cfg = importlib.import_module("ultralytics.cfg")
    known = {name: value for name, value in yolo.overrides.items() if name in ("imgsz", "single_cls")}
    try:
        return cfg.get_cfg(overrides={**known, **given, "data": data, "task": yolo.task, "mode": "train"})
    except (SyntaxError, TypeError, ValueError) as cause:  # Ultralytics raises SyntaxError for a name it does not know
        raise ConfigError(f"Ultralytics refuses the arguments {dict(given)!r}: {first_line(cause)}") from cause


class DetectionBatches:
    """A loader of Ultralytics, whose batches are dictionaries, as one of (images, targets).

    Images are divided by 255, as its trainers do; targets are the other tensors of the batch, by name.
    """

    def __init__(self, loader: Any) -> None:
        self.loader, self.dataset = loader, loader.dataset

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        for batch in self.loader:
            tensors = {name: value for name, value in batch.items() if isinstance(value, Tensor)}
            images = tensors.pop("img")
            yield images.float() / 255, tensors


def make_batches(
    model: nn.Module, arguments: Any, facts: Mapping[str, Any], mode: str, *, mosaics: bool = False
) -> DetectionBatches:
    """The batches that a trainer of Ultralytics would train (``train``) or validate (``val``) this network on.

    ``facts`` is what ``check_dataset`` found. Without ``mosaics`` training images are augmented as in the last epochs
    of Ultralytics' training, when those are over.
    """
    build = importlib.import_module("ultralytics.data.build")
    stride = max(int(model.stride.max()), 32)  # type: ignore[operator, union-attr]
    is_training = mode == "train"
    try:
        dataset = build.build_yolo_dataset(
            arguments, facts[mode], arguments.batch, facts, mode=mode, rect=not is_training, stride=stride
        )
    except (FileNotFoundError, RuntimeError, ValueError) as cause:
        raise DataError(f"the {mode} images of {arguments.data!r} cannot be read: {first_line(cause)}") from cause
    if is_training and not mosaics:
        dataset.close_mosaic(hyp=copy(arguments))
    workers = 0 if next(model.parameters()).device.type == "cpu" else arguments.workers
    return DetectionBatches(build.build_dataloader(dataset, arguments.batch, workers, shuffle=is_training))


def check_dataset(model: nn.Module, arguments: Any) -> dict[str, Any]:
    """What the data's ``.yaml`` says, checked by Ultralytics; refused where it has other classes than the network."""
    utils = importlib.import_module("ultralytics.data.utils")
    try:
        facts: dict[str, Any] = utils.check_det_dataset(arguments.data, autodownload=False)
    except Exception as cause:  # Ultralytics raises whatever the reading of the file raised
        raise DataError(f"Ultralytics cannot use data = {arguments.data!r}: {first_line(cause)}") from cause
    if arguments.single_cls:
        facts |= {"names": {0: "item"}, "nc": 1}
    classes = int(model.model[-1].nc)  # type: ignore[index, union-attr, operator, arg-type]
    if facts["nc"] != classes:
        raise DataError(
            f"{arguments.data!r} has {facts['nc']} classes, and the network tells {classes}: train it on these data "
            "first, yolo.train(data=...), and prune what comes out"
        )
    return facts


class DetectionLoss:
    """The loss that Ultralytics trains a network by (boxes, classes, distances and, where it segments, masks, with its
    own weights), as a mean over the examples of a batch: ``loss(outputs, targets)``."""

    def __init__(self, model: nn.Module, arguments: Any) -> None:
        self.model, self.arguments = model, arguments
        self._criterion: Any = None
        self._device: torch.device | None = None

    def __call__(self, outputs: Any, targets: Mapping[str, Tensor]) -> Tensor:
        first = next(leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor))
        if self._device != first.device:  # a run may move the network
            self._criterion, self._device = self._make(), first.device
        parts, _ = self._criterion(outputs, targets)  # each part times the size of the batch
        total: Tensor = parts.sum() / len(first)
        return total

    def _make(self) -> Any:
        """The criterion of the network; it reads the weights of the parts of the loss from ``model.args``."""
        with _attribute(self.model, "args", self.arguments):
            return self.model.init_criterion()  # type: ignore[operator]


@contextmanager
def _attribute(thing: Any, name: str, value: Any) -> Iterator[None]:
    """Inside, an attribute has another value."""
    before = getattr(thing, name)
    setattr(thing, name, value)
    try:
        yield
    finally:
        setattr(thing, name, before)


def example_images(arguments: Any, facts: Mapping[str, Any]) -> Tensor:
    """One image of the size that the network is trained on: MACs are counted for it."""
    size = arguments.imgsz if isinstance(arguments.imgsz, int) else max(arguments.imgsz)
    return torch.zeros(1, int(facts.get("channels", 3)), size, size)
