"""Ultralytics YOLO: a detection or segmentation network is pruned by its own loss on its own training batches.

>>> from rbprune.integrations.ultralytics import prune_yolo, pruned_trainer
>>> def smaller(yolo):  # yolo = ultralytics.YOLO("best.pt")
...     result = prune_yolo(yolo, data="data.yaml", macs_ratio=2)
...     yolo.train(trainer=pruned_trainer(yolo), data="data.yaml", epochs=50)
...     return result.judge()

Nothing of Ultralytics is imported before one of these functions is called.
"""

from __future__ import annotations

import copy
import random
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from torch import nn

from rbprune.api import Result, prune
from rbprune.errors import ConfigError, ModelError
from rbprune.graph.cutting.history import read_cuts
from rbprune.integrations.ultralytics_batches import (
    DetectionLoss,
    check_dataset,
    example_images,
    make_batches,
    training_arguments,
)
from rbprune.integrations.ultralytics_package import import_ultralytics
from rbprune.integrations.ultralytics_trainer import keep_widths, pruned_trainer, trainable
from rbprune.methods import Price
from rbprune.settings.recipe import merge
from rbprune.train.outcome import POINTS, Outcome
from rbprune.utils import processes
from rbprune.utils.seeds import mix

__all__ = ["YoloResult", "import_ultralytics", "keep_widths", "prune_yolo", "pruned_trainer"]

TASKS = {"detect": "metrics/mAP50-95(B)", "segment": "metrics/mAP50-95(M)"}
"""The tasks that can be pruned, and what Ultralytics calls the score of each: of boxes, and of masks."""


@dataclass
class YoloResult:
    """A pruned YOLO network and how it came about."""

    yolo: Any
    """The ``ultralytics.YOLO`` that was given; its network is the pruned one now."""
    result: Result
    """Plan, summary and events; ``result.save(folder)`` writes them with the weights, without a pickle."""
    scores: dict[str, dict[str, float]]
    """What Ultralytics' validator measured of the ``dense`` network and, after the cuts, of the ``pruned`` one."""
    arguments: Any = field(repr=False)
    """The arguments of Ultralytics that it was pruned with."""

    def judge(self) -> Outcome:
        """What the network is worth as it is now, after fine-tuning for instance, against the dense one.

        It is validated by Ultralytics on the validation images. A fall of the mean average precision by more than one
        point (of a hundred) is bad.
        """
        if read_cuts(self.yolo.model) is None:
            raise ModelError(
                "the network of this YOLO is not the pruned one any more: Ultralytics builds networks anew from their "
                ".yaml when it trains; use yolo.train(trainer=pruned_trainer(yolo), ...)"
            )
        return self._verdict(measure_precision(self.yolo, self.arguments))

    @property
    def verdict(self) -> Outcome:
        """What was reached right after the cuts, before any fine-tuning."""
        return self._verdict(self.scores["pruned"])

    def _verdict(self, now: Mapping[str, float]) -> Outcome:
        name = TASKS[self.yolo.task]
        before, after = 100 * self.scores["dense"][name], 100 * now[name]
        summary = self.result.summary
        text = (
            f"{summary['macs_ratio']:.2f}x fewer MACs and {summary['params_ratio']:.2f}x fewer parameters: "
            f"{name.removeprefix('metrics/')} {after:.1f}, of the dense network {before:.1f}"
        )
        if summary["verdict"]["text"].startswith("Nothing") or "were asked for" in summary["verdict"]["text"]:
            return Outcome("bad", f"{summary['verdict']['text']}; {text}")
        if before < POINTS:
            return Outcome("unknown", f"{text}; a network that finds nothing has nothing to lose: train it first")
        if before - after <= POINTS:
            return Outcome("good", text)
        return Outcome("bad", f"{text}; fine-tune it, yolo.train(trainer=pruned_trainer(yolo), ...), or prune less")

    def __str__(self) -> str:
        return f"{self.verdict.level}: {self.verdict.text}"


def prune_yolo(
    yolo: Any,
    data: str | Path | None = None,
    *,
    method: str = "ibp",
    macs_ratio: float | None = None,
    price: Price | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | Iterable[str] = (),
    console: Console | None = None,
    **arguments: Any,
) -> YoloResult:
    """Prune the network of an ``ultralytics.YOLO`` in place; fine-tuning is left to Ultralytics' own trainer.

    Channels are judged by the loss that Ultralytics trains the network by, on batches that it makes of the training
    images. Afterwards ``yolo`` predicts, validates, exports and saves as before, and trains with
    ``yolo.train(trainer=pruned_trainer(yolo), ...)``.

    Args:
        yolo: A ``YOLO`` with a trained network for detection or segmentation.
        data: The ``.yaml`` of the data; by default the one that the network was trained on.
        method: How channels are judged: by default all at once by the loss; docs/methods.md has all methods, and
            docs/yolo.md compares this one with ``"uniform"``.
        macs_ratio: The MACs end so many times fewer.
        price: What a channel must bring to stay, where no ratio is given; by default it follows what the network
            explains.
        seed: Of everything random.
        options: Other settings, as in ``rbprune.prune``.
        console: Where progress is shown; standard error by default.
        arguments: Arguments of ``yolo.train`` that shape the batches and the loss: ``imgsz``, ``batch``, ``fraction``,
            ``fliplr``, ``mosaic``, ``box``, ``cls``, ...
    """
    import_ultralytics()
    model = _network(yolo)
    if data is None:
        data = yolo.overrides.get("data")
    if data is None:
        raise ConfigError("this YOLO does not know its training data: say prune_yolo(yolo, data='data.yaml')")
    settings = training_arguments(yolo, str(data), arguments)
    facts = check_dataset(model, settings)
    with _seeded(seed):
        train = make_batches(model, settings, facts, "train", mosaics="mosaic" in arguments)
        val = make_batches(model, settings, facts, "val")
        dense = measure_precision(yolo, settings)
        trainable(model)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the verdict on this run is bad")  # fine-tuning is still to come
            result = prune(
                model,
                train,
                example_inputs=example_images(settings, facts),
                val_loader=val,
                method=method,
                macs_ratio=macs_ratio,
                price=price,
                loss_fn=DetectionLoss(model, settings),
                dataset_size=len(train.dataset),
                seed=seed,
                options=_without_finetuning(options),
                console=console,
            )
        keep_widths(yolo)
        return YoloResult(yolo, result, {"dense": dense, "pruned": measure_precision(yolo, settings)}, settings)


def measure_precision(yolo: Any, arguments: Any) -> dict[str, float]:
    """Precision, recall and mean average precision of the network on the validation images, by Ultralytics' validator;
    the network itself is left as it is, and no file stays."""
    told = {"task": yolo.task, "mode": "val", "rect": True, "plots": False, "verbose": False, "save_json": False}
    told |= {name: getattr(arguments, name) for name in ("data", "imgsz", "batch", "workers", "single_cls", "split")}
    with tempfile.TemporaryDirectory() as folder:
        validator = yolo.task_map[yolo.task]["validator"](args=told, save_dir=Path(folder))
        validator(model=copy.deepcopy(yolo.model))  # which it fuses
    return {name: float(value) for name, value in validator.metrics.results_dict.items()}


def _network(yolo: Any) -> nn.Module:
    """The network of a ``YOLO``, refused where it cannot be pruned."""
    model, task = getattr(yolo, "model", None), getattr(yolo, "task", None)
    if not isinstance(model, nn.Module) or not hasattr(yolo, "task_map"):
        what = repr(model) if isinstance(model, str) else f"a {type(yolo).__name__}"
        raise ModelError(f"prune_yolo takes an ultralytics.YOLO with a PyTorch network, YOLO('best.pt'); it got {what}")
    if task not in TASKS:
        raise ModelError(f"prune_yolo knows the tasks {' and '.join(TASKS)}; this network is for {task!r}")
    if model.is_fused():  # type: ignore[operator]
        raise ModelError(
            "the network is fused: its batch normalisation is folded into the convolutions, and it cannot be trained; "
            "load the .pt file again, and prune before anything fuses it (fuse, in older versions predict and val)"
        )
    if processes.world() > 1:
        raise ConfigError(
            f"prune_yolo runs in one process, and {processes.world()} train together here: the boxes of a batch cannot "
            "be divided as its images are; start it without torchrun"
        )
    return model


def _without_finetuning(options: Mapping[str, Any] | Iterable[str]) -> Mapping[str, Any] | list[str]:
    """Options in which the network is not fine-tuned unless they say so."""
    if isinstance(options, Mapping):
        return merge({"finetune": {"epochs": 0}}, options)
    return ["finetune.epochs=0", *options]


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Inside, the generators that Ultralytics augments with, Python's and numpy's, start from a seed."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(mix(seed, 1))
    np.random.seed(mix(seed, 2) % 2**32)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
