"""Processes compare what they cut: two of them for real, in a loop of one's own."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch
from torch import nn

from rbprune import trace
from rbprune.methods.agreement import check_agreement, find_disagreement, removal_sums, weight_sums
from tests.train.launch import TORCHRUN, execute

OWN_LOOP = """
import hashlib, json, os, sys, warnings
from pathlib import Path
import torch, torch.distributed as dist, torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from rbprune import Price, Pruner
from rbprune.errors import ProcessesError
from rbprune.methods.agreement import check_agreement

warnings.simplefilter("ignore")
dist.init_process_group("gloo")
rank, found = dist.get_rank(), {"networks": {}, "refused": {}}

def net():
    torch.manual_seed(0)
    first = nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))

def batch(number, size):
    g = torch.Generator().manual_seed(1000 * rank + number)  # every process has other data
    y = torch.randint(2, (size,), generator=g)
    return torch.randn(size, 1, 9, 9, generator=g) + y.view(-1, 1, 1, 1), y

def pruned(measured, loss_fn=F.cross_entropy, together=True, **settings):
    model = net()
    pruner = Pruner(model, torch.zeros(2, 1, 9, 9), dataset_size=1000, loss_fn=loss_fn, **settings)
    if measured:
        pruner.measure([batch(100 + k, 8) for k in range(3)])
    torch.manual_seed(rank)  # noise of its own
    for stage in pruner:
        wrapped = DistributedDataParallel(model) if together else model  # anew after every cut
        optimizer = torch.optim.Adam(stage.param_groups(lr=1e-3, rate_lr=0.2))
        for number in range(12):
            x, y = batch(number, 6 + rank)  # and batches of another size
            y = y.float().unsqueeze(1).expand(-1, 2) if loss_fn is F.mse_loss else y
            loss = loss_fn(wrapped(x), y) + stage.kl(y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        stage.finish()
    state = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    return [pruner.plan.to_json(), hashlib.sha256(state).hexdigest(), pruner.graph.macs()]

cases = {
    "rbp": dict(method="rbp", price=Price(nats=60)), "rbp open price": dict(method="rbp"),
    "rbp adam": dict(method="rbp", rates="adam", price=Price(nats=20), confidence=0), "sbp": dict(method="sbp"),
    "dds": dict(method="dds", options={"gamma": 0.05}), "taylor": dict(method="taylor", macs_ratio=1.5),
    "slimming": dict(method="slimming", macs_ratio=1.5), "l1": dict(method="l1", macs_ratio=1.5),
    "rbp ratio": dict(method="rbp", macs_ratio=1.5), "weights": dict(method="l1", macs_ratio=1.5, compensate="weights"),
    "errors": dict(method="rbp", loss_fn=F.mse_loss, price=Price(nats=60)),
}
for name, settings in cases.items():
    measured = name in ("rbp", "rbp ratio", "sbp")
    found["networks"][name] = pruned(measured, **settings)

def refused(name, call):
    try:
        call()
    except ProcessesError as error:
        found["refused"][name] = str(error)

refused("nobody averages", lambda: pruned(False, together=False, method="l1", macs_ratio=1.5))
refused("by chance", lambda: pruned(False, method="random", macs_ratio=1.5))
pruner = Pruner(net(), torch.zeros(2, 1, 9, 9), dataset_size=10, method="l1", macs_ratio=1.5)
with torch.no_grad():
    pruner.model[4].running_var[0] += 1e-7 * rank
refused("one bit", lambda: check_agreement(pruner.graph, ["0"]))
from rbprune.errors import ConfigError
try:
    pruner = Pruner(net(), torch.zeros(2, 1, 9, 9), dataset_size=10, loss_fn=F.cross_entropy)
    pruner.measure([batch(0, 4)] * (1 + rank))
except ConfigError as error:
    found["refused"]["batches"] = str(error)
Path(sys.argv[1], f"found-{rank}.json").write_text(json.dumps(found))
dist.destroy_process_group()
os._exit(0)  # what C++ does at the end aborts now and then in torch, with the group left: see rbprune.cli.app
"""
"""Prunes by several methods, every process with data and noise of its own, in a plain loop under torchrun."""


@pytest.fixture(scope="module")
def own_loop(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("own-loop")
    (folder / "loop.py").write_text(OWN_LOOP)
    ended = execute(folder, *TORCHRUN, str(folder / "loop.py"), str(folder))
    assert ended.code == 0, ended.text
    return [json.loads((folder / f"found-{rank}.json").read_text()) for rank in (0, 1)]


def test_a_loop_of_ones_own_under_torchrun_cuts_the_same_in_every_process(own_loop: list[dict[str, Any]]) -> None:
    first, second = (found["networks"] for found in own_loop)
    assert first == second and len(first) == 11
    dense = trace(nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.Conv2d(8, 8, 3)), torch.zeros(1, 1, 9, 9)).macs()
    assert sum(macs < dense for _, _, macs in first.values()) >= 6, "most of them did cut"


@pytest.mark.parametrize(
    ("case", "what"),
    [
        ("nobody averages", r"after the cut of '0'.* in process 1 of 2; .*average their gradients"),
        ("by chance", r"lost other channels in process 1 of 2; .*draw the same random numbers"),
        ("one bit", r"'4.running_var' has other values in process 1 of 2"),
    ],
)
def test_processes_that_differ_are_stopped_and_named(own_loop: list[dict[str, Any]], case: str, what: str) -> None:
    for found in own_loop:
        assert re.search(what, found["refused"][case]), found["refused"]


def test_other_numbers_of_batches_to_measure_by_are_refused(own_loop: list[dict[str, Any]]) -> None:
    assert all("measure got [1, 2] batches in the processes" in found["refused"]["batches"] for found in own_loop)


def test_those_that_differ_from_most_are_named_by_the_first_name_that_differs() -> None:
    usual, other, less = {"a": "1", "b": "2"}, {"a": "1", "b": "3"}, {"a": "1"}
    assert find_disagreement([other, usual, usual]) == ([0], "b")
    assert find_disagreement([usual, less, usual, other]) == ([1, 3], "b")
    assert find_disagreement([less, usual]) == ([1], "b"), "of a tie the first is believed"
    assert find_disagreement([usual, usual]) is None


def test_sums_tell_channels_shapes_and_single_bits_apart() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    graph = trace(model, torch.zeros(1, 4))
    check_agreement(graph, ["0"])  # alone there is nobody to disagree with
    before, removed = weight_sums(graph), removal_sums(graph)
    with torch.no_grad():
        model[0].bias[1] = -model[0].bias[1]
    assert {name for name, digest in weight_sums(graph).items() if before[name] != digest} == {"0.bias"}
    graph.remove({"0": [2]})
    assert removal_sums(graph) != removed and set(removal_sums(graph)) == {"0"}
