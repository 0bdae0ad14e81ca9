"""Networks that are divided among processes are refused by name; wrappers are too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from rbprune import Pruner, trace
from rbprune.errors import ModelError


@pytest.fixture
def group() -> Iterator[None]:
    """A group of processes, with one of them."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


@pytest.mark.filterwarnings("ignore:FSDP is switching", "ignore:.*FSDP.*")
@pytest.mark.usefixtures("group")
def test_fully_sharded_networks_are_refused_with_the_remedy() -> None:
    mesh = init_device_mesh("cpu", (1,))
    new = net()
    fully_shard(new, mesh=mesh)
    with pytest.raises(ModelError, match=r"divided among processes \('0.weight' is a DTensor\).*before it is sharded"):
        Pruner(new, torch.zeros(1, 4), dataset_size=10)
    old = FullyShardedDataParallel(net(), device_id=torch.device("cpu"))
    with pytest.raises(ModelError, match=r"divided among processes \(a FullyShardedDataParallel inside\)"):
        trace(old, torch.zeros(1, 4))
    within = nn.Sequential(FullyShardedDataParallel(net(), device_id=torch.device("cpu")))
    with pytest.raises(ModelError, match="divided among processes"):
        trace(within, torch.zeros(1, 4))


@pytest.mark.usefixtures("group")
def test_wrappers_are_refused_and_what_is_inside_is_pruned() -> None:
    for wrapped in (DistributedDataParallel(net()), Fabric(accelerator="cpu", devices=1).setup(net())):
        with pytest.raises(ModelError, match=r"is a wrapper around the model; prune its \.module and wrap it again"):
            trace(wrapped, torch.zeros(1, 4))
        assert len(trace(wrapped.module, torch.zeros(1, 4)).sites) == 1
