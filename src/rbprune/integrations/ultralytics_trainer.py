"""Ultralytics' trainers go on with the widths of a pruned network, in place of building it anew from its ``.yaml``."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from torch import nn

from rbprune.errors import ModelError

_REBUILT = (
    "this network was pruned by rbprune, and its .yaml describes the wide one: give train() the argument "
    "trainer=pruned_trainer(yolo), from rbprune.integrations.ultralytics import pruned_trainer"
)


def pruned_trainer(yolo: Any) -> type:
    """The trainer of Ultralytics for the task of a ``YOLO``, which trains the network as it is.

    ``yolo.train(trainer=pruned_trainer(yolo), data=..., epochs=...)``; all else is Ultralytics'. Its own trainer builds
    the wide network from the ``.yaml`` and takes over the few weights whose shapes agree.
    """
    base: Any = yolo.task_map[yolo.task]["trainer"]

    class PrunedTrainer(base):  # type: ignore[misc]
        """Trains the network that it is given."""

        def get_model(self, cfg: Any = None, weights: nn.Module | None = None, verbose: bool = True) -> nn.Module:
            """The network itself, where Ultralytics would build one from ``cfg`` and load the weights."""
            return _as_it_is(weights, self.data)

    return PrunedTrainer


def _as_it_is(weights: nn.Module | None, data: Mapping[str, Any]) -> nn.Module:
    if weights is None:
        raise ModelError(
            "there is no pruned network to train: pretrained=False asks for a new one, and a YOLO that was made from a "
            ".yaml must be pruned (prune_yolo) or marked (keep_widths) first"
        )
    head: Any = weights.model[-1]  # type: ignore[index, union-attr, operator]
    if head.nc != data["nc"]:
        raise ModelError(
            f"the pruned network tells {head.nc} classes, and the data has {data['nc']}: train the dense network on "
            "these data first, and prune what comes out"
        )
    return trainable(weights.float())


def trainable(model: nn.Module) -> nn.Module:
    """Let all weights be trained but those that are constants: Ultralytics loads networks with all of them frozen."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".dfl" not in name)
    return model


def keep_widths(yolo: Any) -> None:
    """Mark the network of a ``YOLO`` as pruned: ``pruned_trainer`` then trains it as it is.

    ``prune_yolo`` does this; it is needed by itself after ``rbprune.load(folder, yolo.model)``. Ultralytics' own
    trainer would build the wide network in silence. So the network's description has the remedy where the name of its
    first layer was, and building a network from it fails with that text.
    """
    yolo.model.yaml = copy.deepcopy(yolo.model.yaml)
    yolo.model.yaml["backbone"][0][2] = _REBUILT
    _note_widths(yolo.model)
    yolo.ckpt = yolo.ckpt or {"model": yolo.model}  # without it YOLO.train forgets the network, as YOLO.load knows
    yolo.predictor = None  # which holds the network as it was


def _note_widths(model: nn.Module) -> None:
    """Bring up to date what blocks that split their channels in half (C2f, C3k2) note of their width: their forward
    does not use it, but the one that Ultralytics puts in its place for an export does."""
    for module in model.modules():
        if hasattr(module, "forward_split") and isinstance(getattr(module, "c", None), int):
            module.c = module.cv1.conv.out_channels // 2  # type: ignore[union-attr, operator, assignment]
