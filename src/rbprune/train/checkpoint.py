"""Checkpoints: folders of safetensors and JSON that appear whole, two of them kept, damage noticed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from rbprune.errors import CheckpointError

KEEP = 2


@dataclass
class Checkpoint:
    """Named tensors and plain values."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def group(self, prefix: str) -> dict[str, Tensor]:
        """The tensors under ``prefix.``, without it."""
        return {name[len(prefix) + 1 :]: t for name, t in self.tensors.items() if name.startswith(prefix + ".")}


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write the next checkpoint of ``folder`` under a temporary name, sync, rename; older ones go."""
    folder.mkdir(parents=True, exist_ok=True)
    existing = _existing(folder)
    serial = int(existing[-1].name.split("-")[1]) + 1 if existing else 0
    final, temporary = folder / f"ckpt-{serial:06d}", folder / ".writing"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    data = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()})
    values = {"sha256": hashlib.sha256(data).hexdigest(), "values": checkpoint.values}
    for name, content in (("state.safetensors", data), ("state.json", json.dumps(values).encode())):
        with open(temporary / name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, final)
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    for old in _existing(folder)[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def load_checkpoint(folder: Path) -> tuple[Checkpoint, Path, list[str]]:
    """The newest whole checkpoint, where it is, and a sentence for each damaged one that was passed over."""
    damaged: list[str] = []
    for path in reversed(_existing(folder)):
        try:
            return _read(path), path, damaged
        except (OSError, ValueError, KeyError) as error:
            damaged.append(f"checkpoint {path} is damaged ({error}); falling back to the one before it")
    if damaged:
        raise CheckpointError(f"no checkpoint in {folder} can be read: {'; '.join(damaged)}; start the run again")
    raise CheckpointError(f"{folder} has no checkpoint; start the run again with 'rbprune prune'")


def _existing(folder: Path) -> list[Path]:
    return sorted(folder.glob("ckpt-*"))


def _read(path: Path) -> Checkpoint:
    raw = json.loads((path / "state.json").read_text())
    data = (path / "state.safetensors").read_bytes()
    if hashlib.sha256(data).hexdigest() != raw["sha256"]:
        raise ValueError("its checksum does not match")
    return Checkpoint(load(data), raw["values"])


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """An optimizer's state as named tensors: ``<parameter number>.<key>``."""
    state = optimizer.state_dict()["state"]
    return {f"{n}.{key}": torch.as_tensor(value) for n, entry in state.items() for key, value in entry.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what ``optimizer_tensors`` gave, in the memory layout of the parameters, so that bits agree."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        number, key = name.split(".", 1)
        parameter = parameters[int(number)]
        if tensor.shape == parameter.shape:
            tensor = torch.empty_like(parameter, dtype=tensor.dtype, requires_grad=False).copy_(tensor)
        state.setdefault(int(number), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
