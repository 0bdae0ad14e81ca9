"""What is special about each method, against independent computations."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import Price, Pruner, models
from rbprune.bayes import dirac
from rbprune.errors import ConfigError, UnprunableError
from rbprune.methods.bc import GaussianWeights
from rbprune.methods.cp import CPStage
from rbprune.methods.curvature import MEMORY
from rbprune.methods.dds import AcceleratedProximal, DDSBlocksStage
from rbprune.methods.ranking import Taylor
from rbprune.methods.rbp import DiracStage
from rbprune.methods.thinet import ThiNetStage
from tests.networks import stripes, tiny_cnn


def pruner(method: str, model: nn.Module, **options: object) -> Pruner:
    return Pruner(model, torch.zeros(1, 1, 8, 8), dataset_size=64, method=method, price=Price(nats=20), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layer", "shape"), [(nn.Conv2d(2, 3, 3, stride=2, padding=1), (1, 2, 5, 5)), (nn.Linear(4, 3), (1, 4))]
)
def test_weight_noise_has_the_moments_of_drawn_weights(layer: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    layer, x = layer.double().train(), torch.randn(shape, dtype=torch.float64)
    plain = layer(x)
    noise = GaussianWeights({"layer": layer})
    with torch.no_grad():
        noise.logvar[0].normal_(-1, 0.5)
    rows = x.expand(20000, *shape[1:])
    local = layer(rows)
    noise.detach()
    deviation = (noise.logvar[0] / 2).exp()
    draws = []
    for _ in range(4000):
        drawn = copy.deepcopy(layer)
        drawn.weight.data += deviation.detach() * torch.randn_like(deviation)
        draws.append(drawn(x))
    direct = torch.cat(draws)
    assert bool(((local.mean(0) - plain[0]).abs() < 5 * local.std(0) / len(rows) ** 0.5).all()), "five standard errors"
    torch.testing.assert_close(local.std(0), direct.std(0), rtol=0.06, atol=0.01)
    assert torch.equal(layer(x), plain), "nothing is left on the layer"


def test_a_layer_without_weight_noise_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ConvTranspose2d(4, 2, 2))
    with pytest.raises(UnprunableError, match=r"no weight noise for '1' \(ConvTranspose2d\)"):
        pruner("bc", model).stage(0)


def test_dds_reaches_exact_zeros_and_keeps_what_the_loss_needs() -> None:
    scale = nn.Parameter(torch.ones(4))
    optimizer = AcceleratedProximal([scale], lr=0.05, gamma=0.2)
    wanted = torch.tensor([1.0, 0.05, 0.6, 0.0])
    for _ in range(400):
        optimizer.zero_grad()
        (scale - wanted).square().sum().div(2).backward()
        optimizer.step()
    assert scale.detach()[[1, 3]].tolist() == [0.0, 0.0]
    torch.testing.assert_close(scale.detach()[[0, 2]], torch.tensor([0.8, 0.4]), rtol=1e-3, atol=1e-3)


def test_taylor_is_the_mean_over_examples_of_the_absolute_change() -> None:
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn().eval(), stripes(16)
    stage = pruner("taylor", model, macs_ratio=2.0, only=["0"]).stage(0)
    assert isinstance(stage, Taylor)
    stage.observe([(images, labels)], F.cross_entropy)
    by_hand = torch.zeros(16, 6)
    for i in range(16):
        z = model[:4](images[i : i + 1]).detach().requires_grad_(True)
        F.cross_entropy(model[4:](z), labels[i : i + 1]).backward()
        assert z.grad is not None
        by_hand[i] = (z * z.grad).sum((2, 3))[0].abs().detach()
    score = by_hand.mean(0)
    torch.testing.assert_close(stage.score(stage.sites[0]), score / score.norm(), rtol=1e-4, atol=1e-6)


def contributions(model: nn.Sequential, images: Tensor) -> tuple[Tensor, Tensor]:
    """For the linear layer 8 of ``tiny_cnn``: what each of its 12 input channels adds to each output."""
    x = model[:8](images).double()
    weight = model[8].weight.detach().double()
    return torch.einsum("ncp,fcp->nfc", x.view(len(x), 12, 16), weight.view(-1, 12, 16)), x


def test_thinet_removes_what_a_search_over_all_pairs_cannot_beat_by_much() -> None:
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn().eval(), stripes(64)
    found = pruner("thinet", model, macs_ratio=1.12, only=["4"])
    stage = found.stage(0)
    assert isinstance(stage, ThiNetStage)
    stage.count = 2
    stage.observe([(images, labels)] * 20, F.cross_entropy)
    (verdict,) = stage.judge().values()
    parts = contributions(model, images)[0].flatten(0, 1)
    costs = {(i, j): float((parts[:, i] + parts[:, j]).square().sum().detach()) for i in range(12) for j in range(i)}
    chosen = tuple(sorted(verdict.redundant.nonzero().flatten().tolist(), reverse=True))
    assert costs[chosen] <= 1.5 * min(costs.values())
    assert 0 < stage.notes["4"] < 1


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


def test_slimming_says_which_site_has_no_normalisation() -> None:
    with pytest.raises(UnprunableError, match=r"slimming ranks by batch normalisation, and site '8' has none"):
        pruner("slimming", tiny_cnn(), macs_ratio=2.0).stage(0).penalty()


def test_who_must_be_told_and_who_cannot_be_told() -> None:
    with pytest.raises(ConfigError, match=r"'uniform' must be told how much to cut: set prune\.macs_ratio=2"):
        pruner("uniform", tiny_cnn())
    with pytest.raises(ConfigError, match="'rbp' decides layer by layer how much to cut"):
        pruner("rbp", tiny_cnn(), macs_ratio=2.0, rates="adam")


@pytest.mark.parametrize("fixed_point", [True, False])
def test_a_dead_channel_of_a_cheap_layer_goes_before_a_useful_one_of_a_dear_layer(fixed_point: bool) -> None:
    """By their rates it would be the other way round: a dead channel's rate is 1 - 1 / (2 price)."""
    found = pruner("ibp", tiny_cnn(), macs_ratio=1.2, rates="fixed-point" if fixed_point else "adam")
    stage = found.stage(0)
    assert isinstance(stage, DiracStage)
    dear, cheap = stage.names[0], stage.names[-1]

    def each(values: dict[str, float], else_: float) -> Tensor:
        return torch.cat([torch.full((site.channels,), values.get(site.name, else_)) for site in stage.sites])

    nats, earned = each({dear: 1000.0, cheap: 20.0}, 500.0), each({dear: 0.9, cheap: 0.0}, 3.0)
    stage.given = dirac.eps2_from_nats(nats)
    if stage.search is not None:
        stage.search.nats = nats
    curvature = 2 * nats * earned
    with torch.no_grad():
        stage.factors.rate.copy_(dirac.stationary_rate(curvature, stage.eps2))
        stage.factors.curvature.running.copy_(curvature * (1 - MEMORY))
        stage.factors.curvature.updates += 1
    verdicts = stage.judge()
    assert verdicts[dear].value.min() > verdicts[cheap].value.max(), "the trap is not set"
    torch.testing.assert_close(torch.cat([v.rank for v in verdicts.values()]), 1 - earned, rtol=1e-3, atol=1e-3)  # type: ignore[misc]
    if fixed_point:  # which finds the price on the way: there is none to lower
        channels = stage.finish(batches=[]).channels
    else:
        with pytest.warns(UserWarning, match=f"every channel of '{dear}', '{cheap}' was redundant"):
            channels = stage.finish(batches=[]).channels
    assert channels[cheap][1] == math.ceil(0.1 * channels[cheap][0])
    assert channels[dear][1] > 0.5 * channels[dear][0]


def test_a_dead_block_gives_exactly_nothing_and_the_others_fold_their_scale() -> None:
    torch.manual_seed(0)
    model = models.build("resnet20-cifar").eval()
    x = torch.randn(2, 3, 32, 32)
    found = Pruner(model, x, dataset_size=64, method="dds-blocks", price=Price(nats=20))
    stage = found.stage(0)
    assert isinstance(stage, DDSBlocksStage)
    assert stage.blocks == [f"layer{i}.{j}" for i, j in ((1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2))]
    with torch.no_grad():
        stage.factors.scale.uniform_(0.5, 1.5)
        stage.factors.scale[[1, 4]] = 0.0
        wanted = model(x)
        with pytest.warns(UserWarning, match="every channel of"):
            result = stage.finish(batches=[])
        torch.testing.assert_close(model(x), wanted, rtol=1e-4, atol=1e-4)
    left = {name: after for name, (_, after) in result.channels.items()}
    assert left["layer1.1.conv1"] == left["layer2.2.conv1"] == 1
    assert left["layer1.0.conv1"] == 16
    with pytest.raises(UnprunableError, match="dds-blocks finds no residual block"):
        pruner("dds-blocks", tiny_cnn()).stage(0)


def test_options_are_those_of_the_method() -> None:
    with pytest.raises(ConfigError, match="options.gama is no option of 'dds'; did you mean 'gamma'.; it has: gamma"):
        pruner("dds", tiny_cnn(), options={"gama": 0.5})
    with pytest.raises(ConfigError, match="'uniform'; it has none"):
        pruner("uniform", tiny_cnn(), macs_ratio=2.0, options={"l1": 0.5})


@pytest.mark.parametrize("rates", ["adam", "fixed-point"])
def test_the_weight_of_the_divergence_is_a_price(rates: str) -> None:
    """Half the divergence is as much as twice the evidence."""
    options: list[dict[str, float]] = [{}, {"kl_weight": 0.5}]
    one, half = (pruner("ibp", tiny_cnn(), rates=rates, options=given).stage(0) for given in options)
    assert isinstance(one, DiracStage)
    assert isinstance(half, DiracStage)
    torch.testing.assert_close(half.penalty(), 0.5 * one.penalty())
    for stage, curvature in ((one, 50.0), (half, 25.0)):
        stage.param_groups(0.1, 1.0)
        stage.factors.curvature.running.fill_(curvature * (1 - MEMORY))
        stage.factors.curvature.updates += 1
        stage.after_step()
    torch.testing.assert_close(half.factors.rate, one.factors.rate)


def test_dds_in_a_loop_of_ones_own_reaches_zeros_by_its_own_optimizer() -> None:
    stage = pruner("dds", tiny_cnn(), options={"gamma": 1.0}).stage(0)
    assert len(stage.param_groups(0.1, 0.1)) == 1, "plain steps would never make a scale 0"
    optimizer = stage.optimizer(0.1)
    assert optimizer is not None
    for _ in range(20):
        for parameter in stage.factors.parameters():  # type: ignore[attr-defined]
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    assert all(bool(verdict.redundant.all()) for verdict in stage.judge().values())


def test_precision_of_bmrs_has_bounds_and_a_layer_of_zeros_has_a_ranking() -> None:
    for bits in (0.0, 29.0):
        with pytest.raises(ConfigError, match="prune.options.bits is a precision above 0 and up to 28 bits"):
            pruner("bmrs", tiny_cnn(), options={"bits": bits}).stage(0)
    pruner("bmrs", tiny_cnn(), options={"bits": 28.0}).stage(0).judge()
    model = tiny_cnn()
    nn.init.zeros_(model[0].weight)  # type: ignore[arg-type]
    values = pruner("l1", model, macs_ratio=2.0).stage(0).judge()["0"].value
    assert bool(values.isfinite().all())


def test_dds_blocks_says_when_the_blocks_are_not_enough() -> None:
    model, x = models.build("resnet20-cifar").eval(), torch.randn(1, 3, 32, 32)
    found = Pruner(model, x, dataset_size=64, method="dds-blocks", price=Price(nats=20), macs_ratio=50.0)
    with pytest.raises(ConfigError, match="without any of the blocks whose shortcut is the identity"):
        found.stage(0).finish(batches=[])


def test_random_draws_by_the_seed() -> None:
    chosen = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        chosen.append(pruner("random", tiny_cnn(), macs_ratio=2.0).stage(0).judge()["0"].value.tolist())
    assert chosen[0] == chosen[1] != chosen[2]


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
