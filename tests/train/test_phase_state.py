"""A phase in progress goes through a checkpoint to the bit; whole runs are tested in tests/runs/test_resume.py."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F

from rbprune.settings.sections import FinetuneSettings, RuntimeSettings
from rbprune.train.engine import Engine
from rbprune.train.phase import Phase, PhaseRun
from rbprune.train.phase_state import phase_tensors, phase_values, restore_phase_run
from tests.networks import tiny_cnn
from tests.train.small import small_stream


def test_fine_tuning_with_muon_and_an_average_ends_the_same_after_a_stop() -> None:
    torch.manual_seed(0)
    phase = Phase(0, "finetune", FinetuneSettings(epochs=2, lr=0.01, optimizer="muon", average=0.9))

    def begin(model: torch.nn.Module) -> PhaseRun:
        return PhaseRun(phase, Engine(RuntimeSettings()), model, small_stream(), F.cross_entropy, seed=3)

    run = begin(tiny_cnn())
    for _ in run.run_epoch():
        pass
    other = begin(copy.deepcopy(run.model))
    restore_phase_run(other, {k: v.clone() for k, v in phase_tensors(run).items()}, phase_values(run))
    assert run.average is not None and run.average.count > 0
    for each in (run, other):
        while not each.over:
            for _ in each.run_epoch():
                pass
    mine, theirs = run.model.state_dict(), other.model.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
