"""Channel Pruning: least squares to the outputs of the dense network."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Price, Pruner
from rbprune.errors import ConfigError
from rbprune.methods.cp import CPStage
from tests.networks import pruner, stripes, tiny_cnn


def test_cp_fits_the_kept_weights_by_least_squares_to_the_dense_outputs() -> None:
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn().eval(), stripes(2000)
    dense = copy.deepcopy(model)
    found = pruner("cp", model, macs_ratio=1.3, only=["4"])
    stage = found.stage(0)
    assert isinstance(stage, CPStage)
    with pytest.raises(ConfigError, match="cp compares with the network before any cut"):
        CPStage(found.graph, ["4"], replace(stage.context, dense=None)).observe([(images, labels)], F.cross_entropy)
    stage.observe([(images, labels)], F.cross_entropy)
    stage.finish(batches=[])
    with torch.no_grad():
        wanted = dense[:9](images).double()
        read = model[:8](images).double()
        design = torch.cat([read, torch.ones(len(read), 1, dtype=torch.float64)], 1)
        best = design @ torch.linalg.lstsq(design, wanted, driver="gelsd").solution
        ours = model[:9](images).double()
    error, least = float((wanted - ours).norm()), float((wanted - best).norm())
    assert error <= least * 1.001 + 1e-3
    assert stage.notes["4"] == pytest.approx(error / float((wanted - dense[8].bias.detach()).norm()), rel=0.02)


@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_cp_fits_a_convolution_in_either_memory_from_whatever_its_bias_has_become(memory: torch.memory_format) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 12, 3), nn.ReLU(), nn.Conv2d(12, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 2)
    )
    model = model.eval().to(memory_format=memory)
    images = torch.randn(400, 3, 8, 8)
    dense = copy.deepcopy(model)
    with torch.no_grad():
        model[2].bias += 1.0  # type: ignore[operator]
    found = Pruner(model, images[:1], dataset_size=400, method="cp", price=Price(nats=20), macs_ratio=1.5, only=["0"])
    found.dense = dense
    stage = found.stage(0)
    stage.observe([(images, torch.zeros(400))] * 4, F.cross_entropy)
    before = model[2].weight.detach().clone()
    stage.finish(batches=[])
    assert model[2].weight.shape[1] < 12
    assert not any(torch.equal(model[2].weight[:, 0], before[:, i]) for i in range(12)), "nothing was fitted"
    with torch.no_grad():
        wanted, ours = dense[:3](images), model[:3](images)
        scale = (wanted - dense[2].bias.view(-1, 1, 1)).norm()  # type: ignore[operator]
    assert stage.notes["0"] == pytest.approx(float((wanted - ours).norm() / scale), rel=0.1)
    assert (wanted - ours).mean((0, 2, 3)).abs().max() < 0.01


def test_cp_asks_of_a_site_only_its_own_part_of_what_a_shared_consumer_gives() -> None:
    """Whatever the other branch of a concatenation brings, the choice in this one is the same."""

    class Joined(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(8, 10), nn.Linear(8, 10), nn.Linear(20, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.c(torch.cat([self.a(x), self.b(x)], 1))

    torch.manual_seed(0)
    model, x = Joined().double(), torch.randn(512, 8, dtype=torch.float64)
    chosen = []
    for factor in (0.0, 1.0, 30.0):
        changed = copy.deepcopy(model)
        with torch.no_grad():
            changed.c.weight[:, 10:] *= factor
        found = Pruner(changed, x[:1], dataset_size=512, method="cp", price=Price(nats=20), macs_ratio=1.2, only=["a"])
        stage = found.stage(0)
        stage.observe([(x, x)], F.cross_entropy)
        chosen.append(stage.judge()["a"].redundant.tolist())
    assert sum(chosen[0]) > 0
    assert chosen[0] == chosen[1] == chosen[2]


def test_cp_compares_only_the_outputs_that_are_left() -> None:
    """The gate's last layer loses outputs with the site before it."""

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.down, self.up, self.b = (nn.Linear(i, o) for i, o in ((64, 12), (12, 6), (6, 12), (12, 3)))

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(x.flatten(1))
            return self.b(y * torch.sigmoid(self.up(F.relu(self.down(y)))))

    torch.manual_seed(0)
    model, (images, labels) = Gated(), stripes(256)
    found = Pruner(model, images[:1], dataset_size=256, method="cp", price=Price(nats=20), macs_ratio=1.5)
    assert found.stages == [["a"], ["down"]]
    for stage in found:
        stage.observe([(images, labels)], F.cross_entropy)
    assert 0 <= stage.notes["down"] < 1
    assert model.up.out_features == model.a.out_features < 12
    assert model(images).shape == (256, 3)
