"""Torch-Pruning as a peer: its choice is its own, the number of MACs is ours."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rbprune import Pruner, models
from rbprune.errors import ConfigError
from rbprune.graph.cost import MACS
from rbprune.methods.torch_pruning import PeerBN, PeerStage, PeerTaylor, import_torch_pruning
from tests.networks import pruner, stripes, tiny_cnn

pytest.importorskip("torch_pruning")


def test_it_removes_the_filters_of_least_norm_as_many_as_the_macs_need() -> None:
    model = tiny_cnn()
    norms = torch.arange(1, 7).roll(2).float()
    with torch.no_grad():
        model[0].weight.mul_((norms / model[0].weight.flatten(1).norm(dim=1)).view(-1, 1, 1, 1))  # type: ignore[operator]
        for layer in (model[1], model[4]):  # whose weights belong to the channels as well
            torch.nn.init.ones_(layer.weight)  # type: ignore[arg-type]
    found = pruner("tp-magnitude", model, macs_ratio=1.5, only=["0"])
    graph, limit = found.graph, found.graph.macs() / 1.5
    stage = found.stage(0)
    gone = stage.judge()["0"].redundant
    count = int(gone.sum())
    assert float(norms[gone].max()) < float(norms[~gone].min())
    assert MACS.without(graph, {"0": count}) <= limit < MACS.without(graph, {"0": count - 1})
    assert stage.finish(batches=[]).channels["0"] == (6, 6 - count)


def test_only_layers_of_the_stage_are_open_to_it_and_the_model_is_left_alone() -> None:
    model = tiny_cnn()
    stage = pruner("tp-magnitude", model, macs_ratio=1.2, only=["4"]).stage(0)
    assert isinstance(stage, PeerStage)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert not any(mask.any() for mask in stage.choose(0.0).values())
    chosen = stage.choose(0.5)
    assert {name: int(mask.sum()) for name, mask in chosen.items()} == {"4": 6}
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert [model[i] for i in (0, 8, 10)] == stage.arguments(model, 0.5)["ignored_layers"]
    stage.abandon()


def test_what_it_cannot_reach_is_told() -> None:
    """Its criterion sees no channel without batch normalisation."""
    found = pruner("tp-bn", tiny_cnn(), macs_ratio=1.1, only=["8"])
    stage = found.stage(0)
    assert isinstance(stage, PeerBN)
    with pytest.raises(ConfigError, match=r"torch-pruning cannot reach .* MACs: .*ask for less \(a lower ratio\)"):
        stage.judge()
    stage.abandon()


def test_its_taylor_criterion_gets_the_sum_of_the_gradients() -> None:
    torch.manual_seed(0)
    model, (images, labels) = tiny_cnn().eval(), stripes(32)
    stage = pruner("tp-taylor", model, macs_ratio=1.5, only=["0", "4"]).stage(0)
    assert isinstance(stage, PeerTaylor)
    stage.observe([(images[:16], labels[:16]), (images[16:], labels[16:])], F.cross_entropy)
    wanted = torch.autograd.grad(2 * F.cross_entropy(model(images), labels), [model[0].weight])[0]  # type: ignore[list-item]
    torch.testing.assert_close(stage._gradients["0.weight"], wanted)
    stage.judge()
    assert all(parameter.grad is None for parameter in model.parameters()), "nothing is left behind"
    stage.abandon()


def test_its_sparse_training_changes_gradients_before_the_step() -> None:
    model, (images, labels) = tiny_cnn(), stripes(16)
    stage = pruner("tp-bn", model, macs_ratio=1.5, only=["0", "4"]).stage(0)
    F.cross_entropy(model(images), labels).backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    stage.before_step()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p.grad, before[name])}  # type: ignore[arg-type]
    assert changed == {"1.weight", "5.weight"}
    added = model[1].weight.grad - before["1.weight"]  # type: ignore[operator]
    torch.testing.assert_close(added, 1e-4 * model[1].weight.detach().sign(), rtol=1e-3, atol=1e-8)  # type: ignore[operator]
    stage.abandon()


PEERS = ["tp-magnitude", "tp-taylor", "tp-bn", "tp-group"]
FREE = {
    "resnet20b-cifar": (32, ["linear"]),
    "torchvision:resnet18": (32, ["fc"]),
    "torchvision:mobilenet_v2": (32, ["classifier.1"]),
}
"""For some networks the size of an image, and all that is closed to a peer that may prune sums."""


@pytest.mark.parametrize("method", PEERS)
@pytest.mark.parametrize("name", FREE)
def test_with_sums_it_is_free_and_our_cut_leaves_the_shapes_of_its_own_pruner(name: str, method: str) -> None:
    torch.manual_seed(0)
    size, closed = FREE[name]
    model = models.build(name)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight)
    x = torch.randn(2, 3, size, size)
    found = Pruner(model, x, dataset_size=64, method=method, macs_ratio=4, sums=True, least=0.05)
    stage = found.stage(0)
    assert isinstance(stage, PeerStage)
    modules = dict(model.named_modules())
    assert stage.arguments(model, 0.5)["ignored_layers"] == [modules[layer] for layer in closed]
    stage.abandon()
    F.cross_entropy(model.eval()(x), torch.tensor([0, 1])).backward()
    theirs = copy.deepcopy(model)
    for parameter, copied in zip(model.parameters(), theirs.parameters(), strict=True):
        assert parameter.grad is not None
        copied.grad = parameter.grad.clone()
    stage.pruner(theirs, 0.4).step()
    chosen = stage.choose(0.4)
    assert any(chosen[site.name].any() for site in found.graph.sites if site.residual == "sum")
    found.graph.remove({site: mask.nonzero().flatten().tolist() for site, mask in chosen.items()})
    shapes = {key: value.shape for key, value in theirs.state_dict().items()}
    assert {key: value.shape for key, value in model.state_dict().items()} == shapes


def test_the_insides_of_depthwise_blocks_are_open_to_it_without_sums() -> None:
    model, x = models.build("torchvision:mobilenet_v2"), torch.zeros(1, 3, 32, 32)
    found = Pruner(model, x, dataset_size=64, method="tp-magnitude", macs_ratio=2)
    stage = found.stage(0)
    verdicts = stage.judge()
    inside = [site.name for site in found.graph.sites if site.residual == "inside"]
    assert inside and all(verdicts[name].redundant.any() for name in inside)
    stage.abandon()


@pytest.mark.parametrize("method", PEERS)
def test_a_network_that_it_does_not_follow_is_refused_before_it_is_trained(method: str) -> None:
    """It ties channel i of a narrow sum to channel i of the wide one, where the padding moved it to pad + i."""
    model, x = models.build("resnet20-cifar"), torch.zeros(1, 3, 32, 32)
    found = Pruner(model, x, dataset_size=64, method=method, macs_ratio=2, sums=True)
    with pytest.raises(
        ConfigError,
        match=r"not remove the same channels of 'conv1' and 'layer2.0.conv2', .*sums=false, .*resnet20b-cifar",
    ):
        found.rehearse()
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
    Pruner(model, x, dataset_size=64, method=method, macs_ratio=2, sums=False).rehearse()


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    with pytest.raises(ConfigError, match=r"need torch-pruning: pip install 'rbprune\[peers\]'"):
        import_torch_pruning()
