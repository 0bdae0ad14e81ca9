"""The tools around a model work on the pruned one: compile, export, copy, distributed training, state dicts."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import rbprune
from rbprune import trace
from rbprune.errors import ModelError
from tests.networks import random_drop, relative_error


class Residual(nn.Module):
    """A small network with what tools stumble over: a sum, batch norm, a layer scale, weight norm."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.inner = nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 8, 3, padding=1))
        self.gamma = nn.Parameter(torch.rand(8, 1, 1))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = x + self.gamma * torch.relu(self.inner(x))
        return self.head(x.mean((2, 3)))


def pruned() -> tuple[Residual, rbprune.Plan, Tensor]:
    torch.manual_seed(0)
    model = Residual()
    x = torch.randn(4, 3, 8, 8)
    graph = trace(model, x)
    assert [site.name for site in graph.sites] == ["stem"]
    return model, graph.remove(random_drop(graph)), x


@pytest.fixture
def quiet() -> None:
    torch._dynamo.reset()
    torch._logging.set_logs(all=50)


def test_names_and_classes_are_unchanged() -> None:
    model, _, _ = pruned()
    fresh = Residual()
    assert [(n, type(m).__name__) for n, m in model.named_modules()] == [
        (n, type(m).__name__) for n, m in fresh.named_modules()
    ]
    assert list(model.state_dict()) == list(fresh.state_dict())
    assert model.stem.weight.shape[0] == model.stem.out_channels == model.norm.num_features < 8
    assert type(model) is Residual


def test_training_goes_on() -> None:
    model, _, x = pruned()
    optimizer = torch.optim.SGD(model.train().parameters(), 0.1, momentum=0.9)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert not model.eval().norm.training


def test_a_copy_is_the_same_and_its_own() -> None:
    model, _, x = pruned()
    model.eval()
    twin = copy.deepcopy(model)
    assert torch.equal(twin(x), model(x))
    twin.head.bias.data.add_(1)
    assert not torch.equal(twin(x), model(x))


def test_the_state_goes_into_a_fresh_network_with_the_plan(tmp_path: Path) -> None:
    model, plan, x = pruned()
    torch.save(model.state_dict(), tmp_path / "state.pt")
    fresh = rbprune.apply_plan(Residual(), rbprune.Plan.from_json(plan.to_json()))
    fresh.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(fresh.eval()(x), model.eval()(x))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_torch_compile_captures_the_whole_network(training: bool) -> None:
    model, _, x = pruned()
    model.train(training)
    wanted = copy.deepcopy(model)(x)
    found = torch.compile(model, backend="eager", fullgraph=True)(x)
    assert relative_error(wanted, found) < 1e-5
    found.sum().backward()
    assert model.stem.weight.grad is not None


@pytest.mark.usefixtures("quiet")
def test_torch_export_gives_the_same_function_for_any_batch(tmp_path: Path) -> None:
    model, _, x = pruned()
    model.eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(model, (x,), dynamic_shapes={"x": {0: batch}})
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    more = torch.randn(7, 3, 8, 8)
    assert relative_error(model(more), loaded(more)) < 1e-5


def _train_one_step(rank: int, world: int, folder: str) -> None:
    """One step of DDP on a share of the batch; writes the gradients."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    model, _, x = pruned()
    wrapped = nn.parallel.DistributedDataParallel(model.train())
    optimizer = torch.optim.SGD(wrapped.parameters(), 0.1)
    wrapped(x.chunk(world)[rank]).square().mean().backward()
    torch.save({n: p.grad for n, p in model.named_parameters()}, f"{folder}/{rank}.pt")
    optimizer.step()
    torch.save(model.state_dict(), f"{folder}/state{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_ddp_with_two_processes_agrees(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_train_one_step, (2, str(tmp_path)), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert first["stem.weight"].shape[0] < 8
    assert first["stem.weight"].abs().sum() > 0
    assert all(torch.equal(first[name], second[name]) for name in first)
    states = [torch.load(tmp_path / f"state{rank}.pt", weights_only=True) for rank in (0, 1)]
    assert all(torch.equal(states[0][n], states[1][n]) for n, _ in pruned()[0].named_parameters())


def test_ddp_with_one_process_gives_the_gradients_of_the_model(tmp_path: Path) -> None:
    _train_one_step(0, 1, str(tmp_path))
    model, _, x = pruned()
    model.train()(x).square().mean().backward()
    found = torch.load(tmp_path / "0.pt", weights_only=True)
    for name, p in model.named_parameters():
        assert relative_error(p.grad, found[name]) < 1e-5


@pytest.mark.parametrize(("wrap", "inside"), [(torch.compile, "_orig_mod"), (nn.DataParallel, "module")])
def test_a_wrapped_model_says_what_to_prune(wrap: Callable[[nn.Module], nn.Module], inside: str) -> None:
    model, _, x = pruned()
    with pytest.raises(ModelError, match=f"is a wrapper around the model; prune its .{inside} and wrap it again"):
        trace(wrap(model), x)
    assert trace(getattr(wrap(model), inside), x).sites


@pytest.mark.slow
@pytest.mark.usefixtures("quiet")
def test_inductor_compiles_the_pruned_network() -> None:
    model, _, x = pruned()
    model.eval()
    assert relative_error(model(x), torch.compile(model, backend="inductor")(x)) < 1e-5
