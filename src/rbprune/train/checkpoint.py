"""Checkpoints: folders of safetensors and JSON that appear whole, two of them kept, damage noticed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from rbprune.errors import CheckpointError
from rbprune.utils.checksums import sha256, sums_text
from rbprune.utils.files import sync_folder, write_errors
from rbprune.utils.plain_file import read_plain

KEEP = 2
WRITING = ".writing"
"""The name of a checkpoint that is not whole yet."""
_TENSORS, _VALUES, _SUMS = "state.safetensors", "state.json", "state.sha256"


@dataclass
class Checkpoint:
    """Named tensors and plain values."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def group(self, prefix: str) -> dict[str, Tensor]:
        """The tensors under ``prefix.``, without it."""
        return {name[len(prefix) + 1 :]: t for name, t in self.tensors.items() if name.startswith(prefix + ".")}


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write the next checkpoint of ``folder`` under a temporary name, sync, rename; older ones go.

    Where it cannot be written, those that are there stay, and nothing of it is left.
    """
    data = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in checkpoint.tensors.items()})
    contents = {_TENSORS: data, _VALUES: json.dumps(checkpoint.values).encode()}
    contents[_SUMS] = _sums(contents)
    with write_errors(folder):
        folder.mkdir(exist_ok=True)  # not the run's own folder, which somebody may have deleted
        existing = _existing(folder)
        serial = int(existing[-1].name.split("-")[1]) + 1 if existing else 0
        final, temporary = folder / f"ckpt-{serial:06d}", folder / WRITING
        try:
            _write_folder(temporary, contents)
            os.replace(temporary, final)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    sync_folder(folder)
    for old in _existing(folder)[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def _write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in contents.items():
        with open(folder / name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    sync_folder(folder)


def load_checkpoints(folder: Path) -> Iterator[tuple[Checkpoint, Path, list[str]]]:
    """The whole checkpoints, newest first, each with where it is and a sentence for each damaged one passed over.

    Whoever cannot go on from one asks for the next and adds a sentence of his own. An error where there is none, or
    none is left.
    """
    passed: list[str] = []
    for path in reversed(_existing(folder)):
        try:
            checkpoint = _read(path)
        except (CheckpointError, OSError, ValueError, KeyError, RecursionError) as error:
            passed.append(f"checkpoint {path} is damaged ({error}); falling back to the one before it")
            continue
        yield checkpoint, path, passed
    if passed:
        raise CheckpointError(f"no checkpoint in {folder} can be read: {'; '.join(passed)}; start the run again")
    raise CheckpointError(f"{folder} has no checkpoint; start the run again with 'rbprune prune'")


def load_checkpoint(folder: Path) -> tuple[Checkpoint, Path, list[str]]:
    """The newest whole checkpoint, where it is, and a sentence for each damaged one that was passed over."""
    return next(load_checkpoints(folder))


def _existing(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("ckpt-*") if path.name[5:].isdecimal())


def _sums(contents: Mapping[str, bytes]) -> bytes:
    """The sums of tensors and values, as ``sha256sum -c`` reads them."""
    return sums_text({name: sha256(contents[name]) for name in (_TENSORS, _VALUES)}).encode()


def _read(path: Path) -> Checkpoint:
    contents = {name: read_plain(path / name, CheckpointError) for name in (_TENSORS, _VALUES, _SUMS)}
    if contents[_SUMS] != _sums(contents):
        raise ValueError("its checksum does not match")
    return Checkpoint(load(contents[_TENSORS]), json.loads(contents[_VALUES]))


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
