"""Sums under the methods that rank channels without noise."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from rbprune import Pruner, trace
from rbprune.methods.ranking import filter_norms
from rbprune.models.resnet_cifar import ResNetCifar
from tests.methods.residual_network import SUMS, data, network
from tests.networks import relative_error


def test_taylor_is_the_slope_of_one_factor_for_all_readers() -> None:
    model, (x, labels) = network(), data()
    stage = Pruner(model, x[:1], dataset_size=64, method="taylor", macs_ratio=1.5, sums=True, only=["stem"]).stage(0)
    stage.observe([(x, labels)], F.cross_entropy)
    value = stage.judge()["stem"].value
    stage.abandon()
    slopes = []
    for image, label in zip(x, labels, strict=True):
        theta = torch.ones(6, dtype=torch.float64, requires_grad=True)
        F.cross_entropy(model.with_factors(image[None], theta, None), label[None]).backward()
        assert theta.grad is not None
        slopes.append(theta.grad.abs())
    wanted = torch.stack(slopes).mean(0)
    torch.testing.assert_close(-value, wanted / wanted.norm(), rtol=1e-5, atol=1e-7)


def test_l1_is_over_all_producers_and_slimming_over_all_norms() -> None:
    model, (x, _) = network(), data()
    graph = trace(model, x)
    wanted = sum(model.get_submodule(name).weight.abs().flatten(1).sum(1) for name in ("stem", "b"))  # type: ignore[union-attr, operator]
    torch.testing.assert_close(filter_norms(graph, graph["stem"]), wanted)
    options = {"method": "slimming", "macs_ratio": 1.5, "sums": True, "only": SUMS, "options": {"l1": 0.25}}
    stage = Pruner(model, x[:1], dataset_size=64, **options).stage(0)  # type: ignore[arg-type]
    norms = {"stem": ("stem_norm", "b_norm", "before"), "d": ("d_norm", "down_norm")}
    scales = {
        name: torch.stack([model.get_submodule(norm).weight.detach().abs() for norm in found])  # type: ignore[union-attr, operator]
        for name, found in norms.items()
    }
    torch.testing.assert_close(stage.kl().detach(), 0.25 * sum(scale.sum() for scale in scales.values()))
    for name, verdict in stage.judge().items():
        torch.testing.assert_close(-verdict.value, scales[name].mean(0))
    stage.abandon()


def test_slimming_passes_over_the_padding_of_a_shortcut_which_is_no_norm() -> None:
    model, x = ResNetCifar(8, classes=3), torch.zeros(1, 3, 16, 16)
    stage = Pruner(model, x, dataset_size=64, method="slimming", macs_ratio=2, sums=True).stage(0)
    with torch.no_grad():
        for block in (model.layer2[0], model.layer3[0]):
            block.bn2.weight[: len(block.shortcut.below)] = torch.rand(len(block.shortcut.below))  # type: ignore
    verdicts = stage.judge()
    torch.testing.assert_close(-verdicts["layer3.0.conv2"].value, model.layer3[0].bn2.weight[:16].detach().double())
    assert verdicts["conv1"].value.tolist() == [-1.0] * 16
    stage.abandon()


def test_thinet_removes_what_all_readers_miss_least_and_not_what_one_of_them_ignores() -> None:
    model, (x, labels) = network(), data(32)
    with torch.no_grad():
        for reader in (model.a, model.c, model.down):
            reader.weight[:, 4] *= 1e-3
        model.a.weight[:, 2] = 0
    stage = Pruner(model, x[:1], dataset_size=64, method="thinet", macs_ratio=1.1, sums=True, only=["stem"]).stage(0)
    stage.count = 1  # type: ignore[attr-defined]
    stage.observe([(x, labels)] * 4, F.cross_entropy)
    assert stage.judge()["stem"].redundant.nonzero().flatten().tolist() == [4]
    stage.abandon()


def test_cp_fits_every_reader_of_a_sum_to_the_dense_network() -> None:
    """Channels 1 and 4 of the sum are the same throughout, so without one of them every reader can do as before."""
    model, (x, labels) = network(), data(256)
    with torch.no_grad():
        for name in ("stem", "b"):
            model.get_submodule(name).weight[4] = model.get_submodule(name).weight[1]  # type: ignore[union-attr, operator]
        for name in ("stem_norm", "b_norm", "before"):
            norm = model.get_submodule(name)
            for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
                tensor[4] = tensor[1]  # type: ignore[operator, index]
    found = Pruner(model, x[:1], dataset_size=64, method="cp", macs_ratio=1.1, sums=True, only=["stem"])
    stage = found.stage(0)
    stage.count = 1  # type: ignore[attr-defined]
    with torch.no_grad():
        before = model(x)
    stage.observe([(x, labels)] * 8, F.cross_entropy)
    assert stage.judge()["stem"].redundant.nonzero().flatten().tolist() in ([1], [4])
    stage.finish(batches=[])
    with torch.no_grad():
        assert relative_error(before, model(x)) < 1e-6
