"""What a run of a model is given in place of its tensors, so that nothing is computed with or written into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

StandIn = Callable[[Tensor], Tensor]
"""Makes what a run is given in place of a tensor of the model or of its inputs: one without values, or a copy."""


def on_meta(tensor: Tensor) -> Tensor:
    """A tensor of the same shape and type without values."""
    return torch.empty_like(tensor, device="meta")


def put_stand_ins(model: nn.Module, stand_in: StandIn, made: dict[int, Tensor]) -> None:
    """Replace the tensors of a model; ``preserve_model`` puts them back. Single values stay, as control flow needs
    them, and so does what a scripted module holds, which cannot be replaced. ``made`` are those that there are."""
    of_this_run: dict[int, Tensor] = {}  # an id names a tensor only as long as somebody holds it

    def replaced(tensor: Tensor, is_parameter: bool, is_held: bool) -> Tensor:
        known = made if is_held and tensor.numel() > 1 else of_this_run
        if id(tensor) not in known:
            copied = stand_in(tensor.detach()) if tensor.numel() > 1 else tensor.detach().clone()
            known[id(tensor)] = nn.Parameter(copied, tensor.requires_grad) if is_parameter else copied
        return known[id(tensor)]

    for module in model.modules():
        if not isinstance(module, torch.jit.ScriptModule):
            tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers, vars(module))
            for held in tables:
                is_parameter, is_held = held is module._parameters, held is not tables[2]
                tensors = [(name, value) for name, value in held.items() if isinstance(value, Tensor)]
                held.update({name: replaced(value, is_parameter, is_held) for name, value in tensors})
