"""The cuts that a network has behind it, noted on the network itself: later cuts, and copies of it, know them.

The note is a plain string among the attributes of the model: its class, its names and its state stay what they are, and
whoever loads a pickle of the model needs no rbprune.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from rbprune.graph.branch import is_replaced
from rbprune.graph.cost import LayerCost
from rbprune.graph.cutting.check_plan import counts_with_sizes
from rbprune.graph.cutting.plan import Plan
from rbprune.graph.cutting.surgery import find_tensor, weight_names
from rbprune.graph.sites import places_of

_NOTE = "_rbprune_cuts"


@dataclass(frozen=True)
class CutHistory:
    """How a network came about from the one that was built."""

    plan: Plan
    """What has been removed from the original network."""
    shapes: dict[str, list[int]]
    """What the tensors that were cut measured in the original network, and at how many places layers were used there
    that are applied to every channel alike."""

    def after(self, earlier: CutHistory | None, model: nn.Module) -> CutHistory:
        """The whole history of ``model``, which had an earlier one before this."""
        if earlier is None:
            return self
        gone = {path: steps for block in self.plan.blocks.values() for path, steps in block.modules.items()}
        changed = {n: None for n in (*earlier.plan.widths, *self.plan.widths) if not is_replaced(n, gone)}
        keys = {name: [*earlier.plan.widths.get(name, ()), *self.plan.widths.get(name, ())] for name in changed}
        counts = {name: counts_with_sizes(model.get_submodule(name), keys[name]) for name in changed}
        return CutHistory(earlier.plan.then(self.plan, counts), {**self.shapes, **earlier.shapes})

    def original_layers(self, layers: Iterable[LayerCost]) -> list[LayerCost]:
        """What all layers cost in the original network, where these are the ones of the present network."""
        return self.scaled_to_original(layers) + [each for b in self.plan.blocks.values() for each in b.layers]

    def scaled_to_original(self, layers: Iterable[LayerCost]) -> list[LayerCost]:
        """What these layers of the present network cost in the original one: in proportion to their weights."""
        found = []
        for layer in layers:
            shapes = [self.shapes[name] for name in weight_names(layer.name) if name in self.shapes]
            weights = sum(map(math.prod, shapes)) if shapes else layer.params
            places = self.shapes.get(places_of(layer.name))
            macs = places[0] * weights if places else layer.macs * weights // layer.params
            found.append(LayerCost(layer.name, layer.kind, macs, weights))
        return found


def tensor_shapes(model: nn.Module, names: Iterable[str]) -> dict[str, list[int]]:
    """What parameters and buffers measure now, of those of these names that are there."""
    tensors = {name: find_tensor(model, name)[2] for name in names}
    return {name: list(tensor.shape) for name, tensor in tensors.items() if tensor is not None}


def note_cuts(model: nn.Module, history: CutHistory) -> None:
    """Let the model know its history, in place of what it knew before."""
    setattr(model, _NOTE, json.dumps({"plan": history.plan.to_json(), "shapes": history.shapes}))


def read_cuts(model: nn.Module) -> CutHistory | None:
    """The cuts that a model has behind it; None where it has none, or where something else has changed it since."""
    note = vars(model).get(_NOTE)
    if note is None:
        return None
    raw = json.loads(note)
    history = CutHistory(Plan.from_json(raw["plan"]), raw["shapes"])
    for name, dims in history.plan.tensors.items():
        try:
            tensor = find_tensor(model, name)[2]
        except AttributeError:
            tensor = None
        if tensor is None or any(tensor.shape[int(dim)] != len(kept) for dim, kept in dims.items()):
            warnings.warn(
                f"something else has changed {name!r} of this {type(model).__name__} since rbprune cut it; its earlier "
                "cuts are forgotten, and plans lead from the network as it is now",
                stacklevel=2,
            )
            return None
    return history
