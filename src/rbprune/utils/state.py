"""A model's state as tensors that safetensors can hold, and back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rbprune.errors import ModelError
from rbprune.utils.checksums import sha256


def state_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The model's state, contiguous, each tensor on its own."""
    check_state(model)
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}


def tensor_sum(tensor: Tensor) -> str:
    """A checksum of the type, shape and bits of a tensor, wherever it lies.

    >>> zeros = torch.zeros(2)
    >>> tensor_sum(zeros) == tensor_sum(zeros.clone()), tensor_sum(zeros) == tensor_sum(-zeros)
    (True, False)
    """
    plain = tensor.detach().cpu().contiguous()
    kind = f"{plain.dtype} {tuple(plain.shape)}".encode()
    return sha256(kind + plain.reshape(-1).view(torch.uint8).numpy().tobytes())


def check_state(model: nn.Module) -> None:
    """Refuse a state that is more than tensors: it could not be written without a pickle."""
    other = {name: type(value).__name__ for name, value in model.state_dict().items() if not isinstance(value, Tensor)}
    for name, kind in other.items():
        raise ModelError(
            f"{name!r} of this {type(model).__name__} is a {kind}, and only tensors can be saved; let get_extra_state "
            "return a tensor, or leave it out"
        )


def load_state(model: nn.Module, tensors: Mapping[str, Tensor], *, strict: bool = True) -> None:
    """``load_state_dict`` of what was saved without the versions of the modules: they are those of ``model``."""
    state = OrderedDict(tensors)
    state._metadata = model.state_dict()._metadata  # type: ignore[attr-defined]
    model.load_state_dict(state, strict=strict)
