"""Everything that the rest of a run depends on is in a checkpoint, and comes back."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import nn

from rbprune.bayes.likelihood import Location
from rbprune.data.source import Skipped
from rbprune.errors import CheckpointError
from rbprune.train.checkpoint import Checkpoint
from rbprune.train.runner import Runner
from rbprune.train.saving import restore_checkpoint, take_checkpoint
from rbprune.train.stream import LoaderStream
from tests.graph.operations import conv
from tests.graph.residual_networks import FORMS, Block
from tests.networks import learn_stripes, tiny_cnn
from tests.train.small import BATCH, small_runner, small_stream

TEACH = {"finetune": {"distill": 0.5}}


def cut_runner() -> tuple[Runner, Checkpoint]:
    """A runner in the middle of its second stage, and what is saved of it there, as a file would give it back."""
    runner, taken = small_runner(TEACH), 0
    found: list[Checkpoint] = []

    def between_steps(signals: object) -> None:
        nonlocal taken
        taken += 1
        if taken == 6:
            checkpoint = take_checkpoint(runner)
            tensors = {name: tensor.clone() for name, tensor in checkpoint.tensors.items()}
            found.append(Checkpoint(tensors, json.loads(json.dumps(checkpoint.values))))
            assert found[0].values == checkpoint.values, "plain values, which JSON does not change"

    runner._between_steps = between_steps  # type: ignore[method-assign]
    runner.run()
    return runner, found[0]


def test_what_is_taken_can_be_put_back_and_ends_with_the_same_bits() -> None:
    whole, checkpoint = cut_runner()
    assert checkpoint.values["phase"]["step"] == 2
    assert checkpoint.values["state"]["phase"] == 1
    fresh = small_runner(TEACH)
    restore_checkpoint(fresh, checkpoint)
    kept = checkpoint.values["sites"]["0"]["kept"]
    assert fresh.graph["0"].alive.tolist() == kept and len(kept) < 6, "else nothing was cut"
    state = fresh.model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in checkpoint.group("model").items())
    assert fresh.teacher is not None
    dense = fresh.teacher.state_dict()
    assert dense["0.weight"].shape[0] == 6, "it teaches as it was before any cut"
    assert all(torch.equal(dense[name], tensor) for name, tensor in checkpoint.group("teacher").items())
    assert not any(parameter.requires_grad for parameter in fresh.teacher.parameters())
    assert fresh.account.total() == sum(checkpoint.values["state"]["cost"].values())

    resumed = small_runner(TEACH)
    resumed.restore(checkpoint, "ckpt", [])
    resumed.run()
    ours, theirs = whole.model.state_dict(), resumed.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_between_two_phases_there_is_no_phase_and_no_optimizer() -> None:
    checkpoint = take_checkpoint(small_runner())
    assert checkpoint.values["phase"] is None
    assert {name.split(".")[0] for name in checkpoint.tensors} == {"model"}
    assert checkpoint.values["dataset_size"] == 64
    assert all(len(site["kept"]) == site["channels"] for site in checkpoint.values["sites"].values())


def test_other_data_is_refused_and_nothing_is_changed() -> None:
    _, checkpoint = cut_runner()
    other = small_runner(TEACH, count=5 * BATCH)
    before = {name: tensor.clone() for name, tensor in other.model.state_dict().items()}
    with pytest.raises(CheckpointError, match="began with 64 training examples, and now there are 80.*start a new run"):
        restore_checkpoint(other, checkpoint)
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.model.state_dict().items())
    assert (other.state.phase, other.teacher) == (0, None)


def test_a_checkpoint_of_before_sizes_were_noted_is_still_read() -> None:
    _, checkpoint = cut_runner()
    del checkpoint.values["dataset_size"]
    fresh = small_runner(TEACH)
    restore_checkpoint(fresh, checkpoint)
    assert fresh.state.phase == 1


def test_what_was_left_out_and_not_yet_told_will_be_told() -> None:
    _, checkpoint = cut_runner()
    checkpoint.values["state"]["skipped"] = ["a.png"]
    skipped = Skipped()
    fresh = small_runner(TEACH, skipped=skipped)
    restore_checkpoint(fresh, checkpoint)
    assert skipped.names == {"a.png"}


class ErrorStream(LoaderStream):
    """Numbers in place of classes, so that plain ``F.mse_loss`` is the loss."""

    def __init__(self) -> None:
        plain = small_stream()
        super().__init__([(x, F.one_hot(y, 3).float()) for x, y in plain.epoch(0)], plain.size)


def test_what_errors_are_worth_is_that_of_the_dense_network_also_after_a_resume() -> None:
    def runner() -> Runner:
        stream = ErrorStream()
        return small_runner(
            {"prune": {"price": {"nats": 2}}}, loss_fn=F.mse_loss, train=lambda size: stream, val=stream
        )

    whole = runner()
    found: list[Checkpoint] = []

    def between_steps(signals: object) -> None:
        if whole.state.phase == 1 and not found:
            taken = take_checkpoint(whole)
            tensors = {name: tensor.clone() for name, tensor in taken.tensors.items()}
            found.append(Checkpoint(tensors, json.loads(json.dumps(taken.values))))

    whole._between_steps = between_steps  # type: ignore[method-assign]
    whole.run()
    assert isinstance(whole.pruner.likelihood, Location)
    resumed = runner()
    resumed.restore(found[0], "checkpoint", [])
    assert isinstance(resumed.pruner.likelihood, Location)
    assert resumed.pruner.likelihood.sums.tolist() == whole.state.error_sums
    resumed.run()
    assert resumed.pruner.likelihood.sums.tolist() == whole.state.error_sums, "measured once, on the dense network"
    ended = whole.model.state_dict()
    assert all(torch.equal(ended[name], tensor) for name, tensor in resumed.model.state_dict().items())


def checkpoint_when(runner: Runner, is_time: Callable[[Runner], bool]) -> Checkpoint:
    """Run to the end; what was saved between two steps when it was time for the first time."""
    found: list[Checkpoint] = []

    def between_steps(signals: object) -> None:
        if not found and is_time(runner):
            taken = take_checkpoint(runner)
            tensors = {name: tensor.clone() for name, tensor in taken.tensors.items()}
            found.append(Checkpoint(tensors, json.loads(json.dumps(taken.values))))

    runner._between_steps = between_steps  # type: ignore[method-assign]
    runner.run()
    return found[0]


def check_same_end(whole: Runner, resumed: Runner, checkpoint: Checkpoint) -> None:
    """A resumed run ends with the same bits, and tells the same of its cuts."""
    resumed.restore(checkpoint, "checkpoint", [])
    resumed.run()
    ours, theirs = whole.model.state_dict(), resumed.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert resumed.state.cuts == whole.state.cuts
    assert resumed.state.cost == whole.state.cost


CLOSES = {"prune": {"epochs": 10, "rate_lr": 0.1, "price": {"nats": 3}, "threshold": None, "confidence": 0.5}}
"""Stages of forty steps that decide and then bring their rates to 0 or 1."""


def test_a_run_that_stops_while_a_stage_closes_ends_with_the_same_bits() -> None:
    def is_closing(runner: Runner) -> bool:
        stage = None if runner.current is None else runner.current.stage
        return stage is not None and runner.state.phase == 1 and stage.closing and not stage.closed

    whole = small_runner(CLOSES)
    checkpoint = checkpoint_when(whole, is_closing)
    assert bool((checkpoint.tensors["stage.goal"] >= 0).all()), "decided"
    assert sum(cut["gone"] for cut in whole.state.cuts) > 0, "something went"
    check_same_end(whole, small_runner(CLOSES), checkpoint)


@pytest.mark.parametrize("phase", [0, 1])
def test_a_run_whose_cut_is_taken_back_ends_with_the_same_bits(phase: int) -> None:
    """An absurd price asks for nearly all channels; what the stage began with is in the checkpoint."""
    absurd = {"prune": {"epochs": 3, "price": {"nats": 1000}, "threshold": None, "max_rise": 0.05, "lr": 0.01}}

    def runner() -> Runner:
        model = tiny_cnn()
        learn_stripes(model)
        return small_runner(absurd, model=model)

    torch.manual_seed(0)
    whole = runner()
    checkpoint = checkpoint_when(
        whole, lambda run: run.state.phase == phase and run.current is not None and run.current.step >= 5
    )
    assert any(cut["asked"] > cut["gone"] for cut in whole.state.cuts[phase:]), "taken back after the checkpoint"
    torch.manual_seed(0)
    check_same_end(whole, runner(), checkpoint)


def with_branches() -> Runner:
    """A network of two blocks, one of which adds next to nothing; branches are judged first."""
    torch.manual_seed(0)
    stem = nn.Sequential(conv(1, 6), nn.BatchNorm2d(6), nn.ReLU())
    body = nn.Sequential(*(Block(FORMS["relu after the sum"][0]) for _ in range(2)))
    for block in body:
        del block.gate, block.scale, block.pre, block.post
    nn.init.constant_(body[0].bn2.weight, 1e-5)
    model = nn.Sequential(stem, body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
    console = Console(file=io.StringIO(), width=200)
    names = ["1.0", "1.1", "1.0.conv1", "1.1.conv1"]
    prune = {"blocks": True, "only": names, "price": {"nats": 0.03}}
    return small_runner({"prune": prune}, model=model, console=console)


def test_a_run_in_which_a_branch_goes_skips_its_sites_tells_so_and_is_resumed_in_the_middle() -> None:
    whole, taken = with_branches(), []

    def between_steps(signals: object) -> None:
        found = take_checkpoint(whole)
        taken.append(Checkpoint({name: tensor.clone() for name, tensor in found.tensors.items()}, found.values))

    whole._between_steps = between_steps  # type: ignore[method-assign]
    summary = whole.run()
    assert summary["removed_blocks"] == ["1.0"]
    assert summary["channels"]["1.0.conv1"] == [8, 0]
    stages = [event for event in whole.journal.events if event["event"] == "stage"]
    assert [event["sites"] for event in stages] == [["1.0", "1.1"], ["1.1.conv1"]], "one stage had nothing left to do"
    told = whole.console.file.getvalue()  # type: ignore[attr-defined]
    assert "1.0: whole branch gone" in told
    checkpoint = taken[5]  # in the middle of the stage after that of the branches
    assert checkpoint.values["blocks"] == ["1.0"]
    assert checkpoint.values["state"]["phase"] == 2
    fresh = with_branches()
    fresh.restore(checkpoint, "step 6", [])
    assert list(fresh.graph.removed_blocks) == ["1.0"]
    assert all(torch.equal(fresh.model.state_dict()[n], t) for n, t in checkpoint.group("model").items())
    assert fresh.run()["error_after"] == summary["error_after"]
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), fresh.model.parameters(), strict=True))
