"""Torch-Pruning as a peer: its choice is its own, the number of MACs is ours."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.nn.functional as F

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


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    with pytest.raises(ConfigError, match=r"need torch-pruning: pip install 'rbprune\[peers\]'"):
        import_torch_pruning()
