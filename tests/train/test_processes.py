"""Two processes that train one network: torchrun and Fabric's own launch, for real.

Most of the time goes into starting processes, so there are two starts for all tests: Fabric's own of a run that is
stopped by a signal, and torchrun's, which goes on with that run and makes the others.
"""

from __future__ import annotations

import hashlib
import json
import signal

import pytest

from rbprune.settings.recipe import load_recipe
from tests.runs.quick import SMALL, overrides
from tests.train.launch import TORCHRUN, Ended, execute

QUICK = (
    *SMALL,
    "pretrain.epochs=1",
    "prune.epochs=1",
    "prune.rate_lr=0.2",
    "prune.rates=fixed-point",
    "prune.confidence=0",
    "prune.max_rise=100",
    "prune.price={nats_per_example=0.02, nats=0.2}",
    "finetune.epochs=1",
    "runtime.checkpoint_seconds=1000",
)
NET = """
from torch import nn

def net(classes):
    first = nn.Conv2d(1, 8, 5, stride=2), nn.BatchNorm2d(8), nn.ReLU()
    second = nn.Conv2d(8, 12, 5, stride=2), nn.BatchNorm2d(12), nn.ReLU()
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(192, 24), nn.ReLU(), nn.Linear(24, classes))
"""
"""A network whose steps take less time than the processes need to agree on them."""
RUNS = ("rbp", "rbp 3x", "sbp", "thinet 3x", "cp 3x", "taylor 3x", "uniform 3x weights", "rbp 3x factors")
STOPPED = """
import os, signal, sys
from rbprune.cli import main
from rbprune.train.runner import Runner

plain = Runner._between_steps

def between_steps(self, signals):
    if self.engine.rank == 1 and self.current.phase.stage == 1 and self.current.step == 3:
        os.kill(os.getpid(), signal.SIGTERM)
    plain(self, signals)

Runner._between_steps = between_steps
main()
"""
"""``rbprune``, where one of the processes gets a signal in the middle of the second stage."""
KILLED = """
import os, signal
from rbprune.cli import main
from rbprune.train.runner import Runner

plain = Runner._between_steps

def between_steps(self, signals):
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if first and self.engine.rank == 1 and self.current.phase.stage == 1 and self.current.step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    plain(self, signals)

Runner._between_steps = between_steps
main()
"""
"""``rbprune``, where the second process is killed in the middle of the second stage, once."""
EACH = """
import hashlib, os, sys
from pathlib import Path
from rich.console import Console
import torch.distributed as dist
from torch import nn
from rbprune.cli import main
from rbprune.methods.stage import Stage
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import RuntimeSettings
from rbprune.runs.start import start
from rbprune.train import precision

out, names, settings = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]
try:
    main(["resume", str(out / "stopped")])
except SystemExit as end:
    assert not end.code
seen, finish = [], Stage.finish

def watched(self, **options):
    result = finish(self, **options)
    weights = [p.detach() for p in self.graph.model.parameters()]
    for tensor in (*result.values.values(), *weights):
        seen.append(str(tuple(tensor.shape)) + hashlib.sha256(tensor.numpy().tobytes()).hexdigest())
    return result

precision.SMALL_STEP, rank = 0, int(os.environ["RANK"])
precision.computes_bf16 = lambda device: False
precision.time_steps = lambda *given, **options: [1.0, 1.0 if rank else 0.5]  # only the first prefers it
engine, _ = precision.decide_engine(RuntimeSettings(accelerator="cpu"), nn.Conv2d(1, 1, 1), None, None, macs=1)
(out / f"layout-{rank}").write_text(f"{engine.settings.channels_last} {engine.of_main(5 + rank)}")
precision.SMALL_STEP = 1e9
Stage.finish = watched  # at the end of a stage: when the next phase begins, all get the weights of the first process
for name in names:
    method, ratio, way = (*name.split(), "", "")[:3]
    given = [*settings, f"prune.method={method}", *([f"prune.macs_ratio={ratio[:-1]}"] if ratio else [])]
    given += [f"prune.compensate={way}"] if way else []
    start(load_recipe("demo", given), out / name, console=Console(quiet=True))
    (out / f"{name}-{dist.get_rank()}-of-{dist.get_world_size()}").write_text("\\n".join(seen))
"""
"""Goes on with the run that was stopped, then makes the others, and notes what every process came to."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("processes")
    (folder / "stopped.py").write_text(STOPPED)
    (folder / "net.py").write_text(NET)
    words = overrides(
        (*QUICK, f"model.name={folder}/net.py:net", "runtime.devices=2", "runtime.checkpoint_seconds=0.05")
    )
    return execute(folder, str(folder / "stopped.py"), "prune", "demo", "--out", str(folder / "stopped"), *words)


@pytest.fixture(scope="module")
def trained(stopped: Ended) -> Ended:
    folder = stopped.folder
    (folder / "each.py").write_text(EACH)
    return execute(
        folder,
        *TORCHRUN,
        str(folder / "each.py"),
        str(folder),
        ",".join(RUNS),
        *QUICK,
        f"model.name={folder}/net.py:net",
    )


@pytest.fixture(scope="module")
def restarted(stopped: Ended) -> Ended:
    folder = stopped.folder
    (folder / "killed.py").write_text(KILLED)
    words = overrides((*QUICK, f"model.name={folder}/net.py:net", "runtime.checkpoint_seconds=0.05"))
    command = (str(folder / "killed.py"), "prune", "demo", "--out", str(folder / "restarted"), *words)
    return execute(folder, *TORCHRUN, "--max-restarts=1", *command)


def test_torchrun_restarts_a_killed_process_and_the_end_has_the_same_bits(trained: Ended, restarted: Ended) -> None:
    assert trained.code == 0, trained.text
    assert restarted.code == 0, restarted.text
    names = ("rbp", "restarted")
    weights = [(trained.folder / name / "model.safetensors").read_bytes() for name in names]
    plans = [(trained.folder / name / "plan.json").read_bytes() for name in names]
    assert weights[0] == weights[1] and plans[0] == plans[1]
    assert (trained.folder / "restarted" / "events.jsonl").read_text().count('"event": "resume"') == 1
    assert "the processes that train together have lost each other" in restarted.text, "told by the one that lived"
    assert "go on with: rbprune resume" in restarted.text
    assert not (trained.folder / "restarted" / "run.lock").exists()


def test_a_folder_of_another_run_is_refused_also_by_a_restarted_group(stopped: Ended, trained: Ended) -> None:
    """torchrun starts anew whatever failed: what was refused the first time must be refused the second time too."""
    assert trained.code == 0, trained.text
    words = overrides((*QUICK, f"model.name={stopped.folder}/net.py:net"))
    command = ("-m", "rbprune", "prune", "demo", "--out", str(stopped.folder / "rbp"), *words)
    environment = {"TORCHELASTIC_RESTART_COUNT": "1", "TORCHELASTIC_RUN_ID": "job"}
    ended = execute(stopped.folder, *command, **environment)
    assert ended.code != 0 and "exists and is not empty" in ended.text


def test_all_processes_come_to_the_same_network(trained: Ended) -> None:
    folder = trained.folder
    assert trained.code == 0, trained.text
    for name in RUNS:
        first, second = ((folder / f"{name}-{rank}-of-2").read_text() for rank in (0, 1))
        assert first == second, name
        reached = json.loads((folder / name / "summary.json").read_text())["macs_ratio"]
        assert reached >= (3 if name.endswith("3x") else 1)
    summary = json.loads((folder / "rbp" / "summary.json").read_text())
    assert any(after < before for before, after in summary["channels"].values())


def test_all_processes_compute_as_the_first_one_chose(trained: Ended) -> None:
    assert trained.code == 0, trained.text
    assert [(trained.folder / f"layout-{rank}").read_text() for rank in (0, 1)] == ["True 5", "True 5"]


def test_a_signal_to_one_process_stops_both_and_resume_comes_to_the_same_bits(stopped: Ended, trained: Ended) -> None:
    assert stopped.code == 128 + signal.SIGTERM, stopped.text  # of the first process, which got no signal
    assert stopped.text.count("interrupted; go on with: rbprune resume") == 1
    assert trained.code == 0, trained.text
    assert trained.text.count("report: ") == 1, "one process tells the end of the run that went on"
    weights = [(trained.folder / name / "model.safetensors").read_bytes() for name in ("rbp", "stopped")]
    assert hashlib.sha256(weights[0]).hexdigest() == hashlib.sha256(weights[1]).hexdigest()
    lines = (trained.folder / "stopped" / "events.jsonl").read_text().splitlines()
    assert len(lines) == len(set(lines))
    assert sum('"event": "resume"' in line for line in lines) == 1


@pytest.mark.parametrize("devices", [0, -1])
def test_no_process_at_all_is_an_error(devices: int) -> None:
    with pytest.raises(Exception, match="runtime.devices"):
        load_recipe("demo", [f"runtime.devices={devices}"])
