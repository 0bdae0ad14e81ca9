"""Checkpoints appear whole, and damage is noticed."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
import torch

from rbprune.errors import CheckpointError, WriteError
from rbprune.train.checkpoint import (
    Checkpoint,
    load_checkpoint,
    load_checkpoints,
    optimizer_tensors,
    restore_optimizer,
    save_checkpoint,
)
from tests.networks import tiny_cnn


def numbered(value: int) -> Checkpoint:
    return Checkpoint({"model.x": torch.full((3,), float(value))}, {"n": value})


def test_the_newest_of_two_is_read(tmp_path: Path) -> None:
    for value in range(4):
        save_checkpoint(tmp_path, numbered(value))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ckpt-000002", "ckpt-000003"]
    checkpoint, path, damaged = load_checkpoint(tmp_path)
    assert (checkpoint.values["n"], path.name, damaged) == (3, "ckpt-000003", [])
    assert checkpoint.group("model")["x"].tolist() == [3, 3, 3]


@pytest.mark.parametrize("file", ["state.safetensors", "state.json", "state.sha256"])
@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_a_damaged_one_is_passed_over(tmp_path: Path, file: str, damage: str) -> None:
    save_checkpoint(tmp_path, numbered(0))
    victim = save_checkpoint(tmp_path, numbered(1)) / file
    data = bytearray(victim.read_bytes())
    if damage == "remove":
        victim.unlink()
    elif damage == "truncate":
        victim.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2] ^= 0xFF
        victim.write_bytes(data)
    checkpoint, path, damaged = load_checkpoint(tmp_path)
    assert checkpoint.values["n"] == 0
    assert path.name == "ckpt-000000"
    assert len(damaged) == 1
    assert "ckpt-000001 is damaged" in damaged[0]


@pytest.mark.parametrize("file", ["state.safetensors", "state.json", "state.sha256"])
def test_every_single_bit_is_guarded(tmp_path: Path, file: str) -> None:
    """Also one that leaves JSON as it should be and changes a number in it."""
    save_checkpoint(tmp_path, numbered(0))
    victim = save_checkpoint(tmp_path, numbered(1)) / file
    content = victim.read_bytes()
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        victim.write_bytes(changed)
        assert load_checkpoint(tmp_path)[1].name == "ckpt-000000"


def test_a_disk_that_is_full_leaves_the_checkpoints_that_are_there(tmp_path: Path) -> None:
    """The kernel's own error: files must not become larger than so much."""
    before = [save_checkpoint(tmp_path, numbered(value)).name for value in range(2)]
    large, limits = Checkpoint({"x": torch.zeros(100_000)}, {"n": 2}), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(WriteError, match=rf"cannot write {tmp_path}: File too large; allow larger files"):
            save_checkpoint(tmp_path, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == before, "nothing of it is left"
    assert load_checkpoint(tmp_path)[0].values["n"] == 1


def test_a_run_folder_that_was_deleted_is_not_made_again(tmp_path: Path) -> None:
    """It would hold checkpoints that nobody can resume from."""
    with pytest.raises(WriteError, match="gone/checkpoints: No such file or directory; its folder is gone"):
        save_checkpoint(tmp_path / "gone" / "checkpoints", numbered(0))
    assert not (tmp_path / "gone").exists()


def test_whoever_cannot_go_on_from_one_gets_the_one_before(tmp_path: Path) -> None:
    for value in range(2):
        save_checkpoint(tmp_path, numbered(value))
    found = load_checkpoints(tmp_path)
    checkpoint, _, passed = next(found)
    assert checkpoint.values["n"] == 1
    passed.append("it does not fit")
    checkpoint, _, passed = next(found)
    assert (checkpoint.values["n"], passed) == (0, ["it does not fit"])
    with pytest.raises(CheckpointError, match="no checkpoint .* it does not fit; start the run again"):
        next(found)


def test_none_or_only_damaged_ones_are_errors(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no checkpoint"):
        load_checkpoint(tmp_path)
    (save_checkpoint(tmp_path, numbered(0)) / "state.json").write_text("{")
    with pytest.raises(CheckpointError, match="no checkpoint .* can be read.*start the run again"):
        load_checkpoint(tmp_path)


def test_a_half_written_one_does_not_count(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, numbered(0))
    (tmp_path / ".writing").mkdir()
    (tmp_path / ".writing" / "state.json").write_text("{")
    assert load_checkpoint(tmp_path)[0].values["n"] == 0
    save_checkpoint(tmp_path, numbered(1))
    assert load_checkpoint(tmp_path)[0].values["n"] == 1


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_an_optimizer_goes_on_with_the_same_bits(kind: str) -> None:
    def start() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = tiny_cnn().to(memory_format=torch.channels_last)
        if kind == "sgd":
            return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return model, torch.optim.Adam(model.parameters(), lr=0.1)

    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
        torch.manual_seed(seed)
        optimizer.zero_grad()
        model(torch.randn(4, 1, 8, 8)).square().mean().backward()
        optimizer.step()

    model, optimizer = start()
    step(model, optimizer, 1)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    saved = {name: tensor.contiguous().clone() for name, tensor in optimizer_tensors(optimizer).items()}
    step(model, optimizer, 2)
    other, fresh = start()
    other.load_state_dict(state)
    restore_optimizer(fresh, saved)
    step(other, fresh, 2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    buffers = [(a, b) for a, b in zip(optimizer.state.values(), fresh.state.values(), strict=True)]
    assert all(a[k].stride() == b[k].stride() for a, b in buffers for k in a if a[k].dim())


@pytest.mark.parametrize("target", ["/dev/zero", None])
def test_a_checkpoint_of_pipes_and_devices_is_passed_over(tmp_path: Path, target: str | None) -> None:
    saved = [save_checkpoint(tmp_path, numbered(n)) for n in (1, 2)]
    (saved[1] / "state.json").unlink()
    if target is None:
        os.mkfifo(saved[1] / "state.json")
    else:
        (saved[1] / "state.json").symlink_to(target)
    _, path, passed = load_checkpoint(tmp_path)
    assert path == saved[0] and "is a " in passed[0]
