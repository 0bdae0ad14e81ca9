"""Two processes that train one network: torchrun and Fabric's own launch, for real."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rbprune.settings.recipe import load_recipe

QUICK = [
    "data.limit=640",
    "data.val=100",
    "pretrain.epochs=1",
    "prune.epochs=2",
    "prune.rate_lr=0.2",
    "prune.rates=fixed-point",
    "finetune.epochs=1",
    "runtime.recalibrate=3",
    "runtime.checkpoint_seconds=0.2",
    "runtime.threads=1",
]
EACH = """
import hashlib, sys
from pathlib import Path
from rich.console import Console
import torch.distributed as dist
from rbprune.methods.stage import Stage
from rbprune.settings.recipe import load_recipe
from rbprune.runs.start import start

out, settings = Path(sys.argv[1]), sys.argv[2:]
seen, finish = [], Stage.finish

def watched(self, **options):
    result = finish(self, **options)
    weights = [p.detach() for p in self.graph.model.parameters()]
    for tensor in (*result.values.values(), *weights):
        seen.append(str(tuple(tensor.shape)) + hashlib.sha256(tensor.numpy().tobytes()).hexdigest())
    return result

Stage.finish = watched  # at the end of a stage: when the next phase begins, all get the weights of the first process
for name in ("rbp", "rbp 3x", "sbp", "thinet 3x", "taylor 3x"):
    method, _, ratio = name.partition(" ")
    given = [*settings, f"prune.method={method}", *([f"prune.macs_ratio={ratio[:-1]}"] if ratio else [])]
    start(load_recipe("demo", given), out / name, console=Console(quiet=True))
    (out / f"{name}-{dist.get_rank()}-of-{dist.get_world_size()}").write_text("\\n".join(seen))
"""


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def test_all_processes_come_to_the_same_network(tmp_path: Path) -> None:
    script = tmp_path / "each.py"
    script.write_text(EACH)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run(
        [*command, str(tmp_path), *QUICK], capture_output=True, text=True, timeout=300, env=environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("rbp", "rbp 3x", "sbp", "thinet 3x", "taylor 3x"):
        first, second = ((tmp_path / f"{name}-{rank}-of-2").read_text() for rank in (0, 1))
        assert first == second, name
        reached = json.loads((tmp_path / name / "summary.json").read_text())["macs_ratio"]
        assert reached >= (3 if name.endswith("3x") else 1)
    summary = json.loads((tmp_path / "rbp" / "summary.json").read_text())
    assert any(after < before for before, after in summary["channels"].values())


def launch(verb: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rbprune", verb, *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), start_new_session=True
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        text, _ = process.communicate(timeout=240)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, text


def test_a_signal_to_one_process_stops_both_and_resume_comes_to_the_same_bits(tmp_path: Path) -> None:
    sets = [word for item in (*QUICK, "runtime.devices=2") for word in ("--set", item)]
    code, text = finished(launch("prune", "demo", "--out", str(tmp_path / "whole"), *sets))
    assert code == 0, text
    assert text.count("report: ") == 1, "one process tells the end"
    stopped = launch("prune", "demo", "--out", str(tmp_path / "stopped"), *sets)
    log, deadline = tmp_path / "stopped" / "events.jsonl", time.monotonic() + 120
    while not (log.is_file() and '"stage": 0' in log.read_text()):
        assert stopped.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(stopped.pid, signal.SIGINT)
    code, text = finished(stopped)
    assert code == 128 + signal.SIGINT, text
    assert text.count("interrupted; go on with: rbprune resume") == 1
    code, text = finished(launch("resume", str(tmp_path / "stopped")))
    assert code == 0, text
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "stopped")]
    assert hashlib.sha256(weights[0]).hexdigest() == hashlib.sha256(weights[1]).hexdigest()
    assert len(log.read_text().splitlines()) == len(set(log.read_text().splitlines()))


@pytest.mark.parametrize("devices", [0, -1])
def test_no_process_at_all_is_an_error(devices: int) -> None:
    with pytest.raises(Exception, match="runtime.devices"):
        load_recipe("demo", [f"runtime.devices={devices}"])
