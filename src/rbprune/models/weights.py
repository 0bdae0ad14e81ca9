"""Reading weights from a safetensors file into a model, with every mismatch named."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from rbprune.errors import ModelError
from rbprune.utils.state import load_state

SHOWN = 5


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Fill ``model`` in place; the file must hold exactly its parameters and buffers.

    Only the batch counters of batch normalisation may be absent: they do not change what the model computes.
    """
    path = Path(path).expanduser()
    if path.suffix != ".safetensors":
        raise ModelError(
            f"weights {str(path)!r}: only .safetensors files are read, because loading a pickle (.pt, .pth, .bin) "
            "can run any code; convert it once, where you trust it: "
            'safetensors.torch.save_file(model.state_dict(), "weights.safetensors")'
        )
    if not path.is_file():
        raise ModelError(f"weights: there is no file {str(path.absolute())!r}; check the path")
    try:
        given = load_file(path)
    except (SafetensorError, OSError) as cause:
        raise ModelError(f"weights {str(path)!r}: not a readable safetensors file: {cause}; write it anew") from cause

    wanted = model.state_dict()
    problems = {
        "missing": [name for name in wanted if name not in given and not name.endswith("num_batches_tracked")],
        "unexpected": [name for name in given if name not in wanted],
        "of another shape": [
            f"{name} {list(given[name].shape)} (the model has {list(value.shape)})"
            for name, value in wanted.items()
            if name in given and given[name].shape != value.shape
        ],
    }
    found = [f"{len(names)} {kind}: {_first(names)}" for kind, names in problems.items() if names]
    if found:
        raise ModelError(
            f"weights {str(path)!r} do not fit {type(model).__name__}: {'; '.join(found)}; "
            "use the model name and number of classes that the file was saved from"
        )
    load_state(model, given, strict=False)


def _first(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
