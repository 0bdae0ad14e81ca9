"""Models that do unusual things: each is cut exactly or refused with a reason, and stays as it was after any error."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import rbprune
from rbprune import models, trace
from rbprune.errors import ModelError, UnprunableError
from tests.networks import random_drop, relative_error, scramble

from .test_operations import Net, conv

Make = Callable[[], nn.Module]


def tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def check_exact(model: nn.Module, *inputs: Any, sites: dict[str, int], **kwargs: Any) -> rbprune.ChannelGraph:
    """Masked == removed, in evaluation and in training, on all outputs."""
    graph = trace(model, kwargs or inputs)
    assert {site.name: site.channels for site in graph.sites} == sites, graph.frozen
    drop = random_drop(graph)
    masked = []
    with graph.mask(drop):
        for training in (False, True):
            masked.append(_run(copy.deepcopy(model).train(training), inputs, kwargs))
    dense = _run(copy.deepcopy(model).eval(), inputs, kwargs)
    assert max(relative_error(a, b) for a, b in zip(dense, masked[0], strict=True)) > 1e-3, "the mask did nothing"
    graph.remove(drop)
    for training, wanted in zip((False, True), masked, strict=True):
        found = _run(model.train(training), inputs, kwargs)
        assert len(found) == len(wanted)
        for a, b in zip(wanted, found, strict=True):
            assert relative_error(a, b) < 1e-9
    return graph


def _run(model: nn.Module, inputs: Any, kwargs: Any) -> list[Tensor]:
    torch.manual_seed(3)
    random.seed(3)
    return tensors(model(*copy.deepcopy(inputs), **copy.deepcopy(kwargs)))


def image(*shape: int) -> Tensor:
    return torch.randn(*(shape or (3, 3, 6, 6)), dtype=torch.float64)


def snapshot(model: nn.Module) -> list[Any]:
    """All that a model is: attributes, their contents, flags, values, random states."""
    parts: list[Any] = [torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()]
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            held = list(value.items()) if isinstance(value, dict) else list(value) if isinstance(value, list) else value
            parts.append((name, key, id(value), held.clone() if isinstance(held, Tensor) else held))
    parts += [(name, p.requires_grad, p.detach().clone()) for name, p in model.named_parameters()]
    parts += [(name, b.detach().clone()) for name, b in model.named_buffers()]
    return parts


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return bool((a == b).all())
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a is b or a == b


# -- in-place operations and aliases


def in_place_sum(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y += n.b(x)
    return n.c(y)


def add_and_read_again(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    z = y.add_(n.b(x))
    return n.c(y) + n.c(z.mul_(2))


def relu_before_the_shortcut(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    return n.c(n.b(n.relu(y)) + y)


def number_into_places(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y[:, :, 0] = 1.5
    y[..., -1] = 0
    return n.c(y + n.b(x))


def through_a_view(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y.flatten(2).mul_(n.b(x).flatten(2))
    return n.c(y)


def data_attribute(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y.data.add_(n.b(x).data)
    return n.c(y)


IN_PLACE = [
    in_place_sum,
    add_and_read_again,
    relu_before_the_shortcut,
    number_into_places,
    through_a_view,
    data_attribute,
]


@pytest.mark.parametrize("forward", IN_PLACE, ids=lambda f: f.__name__)
def test_in_place_operations_are_exact(forward: Callable[..., Tensor]) -> None:
    b = conv(6, 6) if forward is relu_before_the_shortcut else conv(3, 6)
    model = scramble(Net(forward, a=conv(3, 6), b=b, c=conv(6, 2), relu=nn.ReLU(inplace=True)))
    check_exact(model, image(), sites={"a": 6})


def writes_a_number(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y[:, :2] = 0
    return n.b(y)


def writes_an_activation(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y[:, :, 0] = n.c(x)[:, :, 0]
    return n.b(y)


def copies(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y.copy_(n.c(x))
    return n.b(y)


def fills_zeros(n: Net, x: Tensor) -> Tensor:
    y = torch.zeros(x.shape[0], 6, 6, 6, dtype=x.dtype)
    y[:, :6] = n.a(x)
    return n.b(y)


def out_argument(n: Net, x: Tensor) -> Tensor:
    y, z = n.a(x), n.c(x)
    torch.add(y, 1, out=z)
    return n.b(z)


def transposes_in_place(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    y.transpose_(1, 2)
    return n.b(y)


def makes_a_constant(n: Net, x: Tensor) -> Tensor:
    return n.b(n.a(x) * torch.linspace(1, 2, 6).view(6, 1, 1))


def written_view(n: Net, x: Tensor) -> Tensor:
    return n.fc(n.a(x).view(-1, 216))


def own_width(n: Net, x: Tensor) -> Tensor:
    return n.b(n.a(x).view(-1, n.channels, 6, 6))


def written_expand(n: Net, x: Tensor) -> Tensor:
    return n.b(n.a(x).expand(-1, 6, -1, -1))


def normalized_by_position(n: Net, x: Tensor) -> Tensor:
    return n.b(F.normalize(n.a(x), 2, 1))


def pooled_over_channels(n: Net, x: Tensor) -> Tensor:
    return n.b(F.max_pool2d(n.a(x).permute(0, 2, 3, 1), 3, 1, 1).permute(0, 3, 1, 2))


def size_of_a_space(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    return n.b(y.view(y.size(0), y.size(2), 6, 6))


def unknown_operation(n: Net, x: Tensor) -> Tensor:
    return n.b(torch.fft.fft(n.a(x), dim=1).real)


REFUSED = {
    writes_a_number: "setitem selects channels by position",
    writes_an_activation: "getitem selects channels|setitem writes into channels",
    copies: "copy_ has no channel rule",
    fills_zeros: "setitem writes into channels .*; build the result by torch.cat",
    out_argument: "add with out= has no channel rule",
    transposes_in_place: "transpose_ has no channel rule",
    makes_a_constant: "mul with channels that cannot be removed",
    written_view: r"view fixes the number of channels: \(3, 216\) .*; write x.flatten\(1\)",
    own_width: "view fixes the number of channels",
    written_expand: "expand fixes the number of channels",
    normalized_by_position: "normalize runs over channels",
    pooled_over_channels: "max_pool2d does not find the channels in dimension 1",
    size_of_a_space: "view fixes the number of channels",
    unknown_operation: r"fft_fft has no channel rule .*test_hostile.py:\d+.*; teach it: rbprune.register_rule",
}


@pytest.mark.parametrize(("forward", "reason"), REFUSED.items(), ids=lambda v: getattr(v, "__name__", ""))
def test_what_cannot_be_exact_stays_and_says_why(forward: Callable[..., Tensor], reason: str) -> None:
    model = Net(forward, a=conv(3, 6), b=conv(6, 2), c=conv(3, 6), fc=nn.Linear(216, 2))
    model.channels = 6
    if forward is not makes_a_constant:
        model.double()
    x = image().to(model.a.weight)
    before = snapshot(model)
    graph = trace(model, x)
    assert same(before, snapshot(model))
    assert "a" not in [site.name for site in graph.sites]
    with pytest.raises(UnprunableError, match=f"no site 'a'; it is frozen: .*(?:{reason})"):
        graph.remove({"a": [0]})
    assert same(before, snapshot(model))


def other_size(n: Net, x: Tensor) -> Tensor:
    y, z = n.a(x), n.c(x)
    return n.b(y.flatten(1).view(y.size(0), z.size(1), 6, 6)) + n.d(z)


def test_the_size_of_other_channels_binds_these_to_them() -> None:
    check_exact(
        scramble(Net(other_size, a=conv(3, 6), b=conv(6, 2), c=conv(3, 6), d=conv(6, 2))), image(), sites={"a": 6}
    )


# -- weights


def weight_normed(norm: Callable[..., nn.Module], dim: int | None) -> nn.Module:
    torch.manual_seed(5)
    return scramble(
        nn.Sequential(
            norm(conv(3, 6), dim=dim),
            nn.BatchNorm2d(6),
            nn.Tanh(),
            norm(nn.ConvTranspose2d(6, 5, 3, padding=1), dim=dim),
            nn.Tanh(),
            norm(conv(5, 8), dim=dim),
            norm(conv(8, 8, groups=8), dim=dim),
            norm(conv(8, 8, groups=2), dim=dim),
            nn.Flatten(),
            norm(nn.Linear(8 * 36, 7), dim=dim),
            nn.Tanh(),
            norm(nn.Linear(7, 2), dim=dim),
        )
    )


NORMS = {"hook": nn.utils.weight_norm, "parametrization": nn.utils.parametrizations.weight_norm}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("style", NORMS)
def test_weight_norm_is_cut_exactly(style: str, dim: int | None, training: bool) -> None:
    model, fresh = weight_normed(NORMS[style], dim).train(training), weight_normed(NORMS[style], dim).train(training)
    x = image().requires_grad_()
    graph = trace(model, x)
    assert {site.name: site.channels for site in graph.sites} == {"0": 6, "3": 5, "5": 4, "7": 4, "9": 7}
    drop = random_drop(graph)
    dense = model(x)
    with graph.mask(drop):
        masked = model(x)
    wanted = torch.autograd.grad(masked.square().sum(), x)[0]
    weights = {i: model[i].weight.detach().clone() for i in (0, 3, 5, 7, 9, 11)}
    plan = graph.remove(drop)
    removed = model(x)
    assert relative_error(masked, removed) < 1e-9
    assert relative_error(dense, masked) > 1e-3
    assert relative_error(wanted, torch.autograd.grad(removed.square().sum(), x)[0]) < 1e-9
    for i, weight in weights.items():
        for d, kept in plan.tensors[f"{i}.weight"].items():
            weight = weight.index_select(int(d), torch.tensor(kept))
        assert relative_error(weight, model[i].weight) < 1e-12
    rbprune.apply_plan(fresh, rbprune.Plan.from_json(plan.to_json()))
    assert relative_error(removed, fresh(x)) < 1e-12
    for value in fresh.state_dict().values():
        value.zero_()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(x), fresh.eval()(x))


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("style", NORMS)
def test_factors_are_folded_into_normed_weights(style: str, dim: int | None) -> None:
    model = weight_normed(NORMS[style], dim)
    x = image()
    graph = trace(model, x)
    model(x)
    for name, consumer, column in (("0", 3, 0), ("5", 7, 1), ("9", 11, 1)):
        factors = torch.rand(graph[name].channels).double()
        before = model[consumer].weight.detach().clone()
        graph.scale(graph[name], factors)
        wanted = before * factors.view([-1 if d == column else 1 for d in range(before.dim())])
        assert relative_error(wanted, model[consumer].weight) < 1e-12


def test_the_optimizer_follows_normed_weights() -> None:
    model = nn.Sequential(NORMS["parametrization"](nn.Linear(4, 6)), nn.Tanh(), NORMS["hook"](nn.Linear(6, 2)))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(5, 4)
    model(x).square().sum().backward()
    optimizer.step()
    direction, magnitude = model[0].parametrizations.weight.original1, model[0].parametrizations.weight.original0
    moments = [optimizer.state[t]["exp_avg"].clone() for t in (direction, magnitude)]
    trace(model, x).remove({"0": [0, 3]}, optimizer=optimizer)
    kept = [1, 2, 4, 5]
    cut = model[0].parametrizations.weight
    assert torch.equal(optimizer.state[cut.original1]["exp_avg"], moments[0][kept])
    assert torch.equal(optimizer.state[cut.original0]["exp_avg"], moments[1][kept])
    assert model[2].weight_v.shape == optimizer.state[model[2].weight_v]["exp_avg"].shape == (2, 4)
    assert {id(p) for g in optimizer.param_groups for p in g["params"]} == {id(p) for p in model.parameters()}
    optimizer.zero_grad()
    model(x).square().sum().backward()
    optimizer.step()


def test_a_normed_weight_that_becomes_zero_stays_a_number() -> None:
    model = nn.Sequential(nn.Linear(3, 2), NORMS["parametrization"](nn.Linear(2, 2)))
    with torch.no_grad():
        model[1].parametrizations.weight.original1[0, 1] = 0
    graph = trace(model, torch.zeros(1, 3))
    graph.remove({"0": [0]})
    assert model[1].weight[0].tolist() == [0]
    assert model(torch.randn(2, 3)).isfinite().all()


def pruned_before(layer: nn.Linear) -> nn.Module:
    from torch.nn.utils import prune

    return prune.l1_unstructured(layer, "weight", 0.3)


COMPUTED = {
    "SpectralNorm": [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm],
    "Orthogonal": [nn.utils.parametrizations.orthogonal],
    "L1Unstructured": [pruned_before],
}


@pytest.mark.parametrize(("name", "make"), [(name, make) for name, makes in COMPUTED.items() for make in makes])
def test_a_computed_weight_stays_and_its_maker_is_named(name: str, make: Callable[..., nn.Module]) -> None:
    model = nn.Sequential(nn.Linear(4, 5), make(nn.Linear(5, 6)), nn.Linear(6, 7), nn.Linear(7, 2)).train()
    before = snapshot(model)
    graph = trace(model, torch.zeros(2, 4))
    assert same(before, snapshot(model))
    assert [site.name for site in graph.sites] == ["2"]
    assert f"'1.weight' is computed by {name}; make it a plain parameter first" in graph.frozen["1"]


def test_a_parametrized_layer_with_a_forward_of_its_own_has_no_rule() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sort(super().forward(x), 1)[0]

    model = nn.Sequential(NORMS["parametrization"](Doubled(4, 5)), nn.Linear(5, 2))
    graph = trace(model, torch.zeros(2, 4))
    assert graph.sites == []


def test_a_forward_put_on_an_instance_is_followed() -> None:
    model = nn.Sequential(conv(3, 6), conv(6, 5), nn.ReLU(), conv(5, 2))
    model[1].forward = lambda x: F.conv2d(x.flip(1), model[1].weight, padding=1)
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert "flip has no channel rule" in graph.frozen["0"]


SHARED = {
    "batch norm": (
        lambda: nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), conv(6, 6), nn.BatchNorm2d(6), conv(6, 2)),
        lambda m: setattr(m[3], "weight", m[1].weight),
        "'1.weight' is shared with '3.weight'; give each a parameter of its own",
    ),
    "convolutions fed by others": (
        lambda: nn.Sequential(conv(3, 6), conv(6, 6), nn.ReLU(), conv(6, 6), conv(6, 2)),
        lambda m: setattr(m[3], "weight", m[1].weight),
        "'1.weight' is shared with '3.weight'",
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_tensors_stay(name: str) -> None:
    make, tie, reason = SHARED[name]
    model = make()
    tie(model)
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert reason in graph.frozen["0"]
    assert graph.sites == []


def tied(n: Net, x: Tensor) -> Tensor:
    return F.linear(F.relu(F.linear(x, n.w)), n.w.t())


def raw_use_of_a_layer(n: Net, x: Tensor) -> Tensor:
    return n.b(n.a(x)) + n.a.weight.sum()


def bias_elsewhere(n: Net, x: Tensor) -> Tensor:
    return n.b(n.a(x)) + n.c(n.a.bias.unsqueeze(0))


@pytest.mark.parametrize("forward", [tied, raw_use_of_a_layer, bias_elsewhere], ids=lambda f: f.__name__)
def test_a_weight_that_is_used_elsewhere_stays(forward: Callable[..., Tensor]) -> None:
    w = nn.Parameter(torch.randn(6, 4))
    model = Net(forward, w=w, a=nn.Linear(4, 6), b=nn.Linear(6, 4), c=nn.Linear(6, 4)).double()
    graph = trace(model, image(2, 4))
    assert graph.sites == []


def test_a_layer_that_an_unknown_module_uses_too_stays() -> None:
    class Inner(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) if x.sum() > 0 else -self.layer(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)
            self.inner = Inner(self.a)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x)) + self.inner(x).sum()

    graph = trace(Outer(), torch.zeros(2, 4))
    assert graph.sites == []
    assert "'inner' (Inner) has no channel rule and cannot be followed" in graph.frozen["a"]


def test_an_input_without_a_batch_is_refused() -> None:
    model = nn.Sequential(conv(6, 6), nn.ReLU(), conv(6, 2))
    graph = trace(model, torch.zeros(6, 6, 6))
    assert graph.sites == []


@pytest.mark.parametrize("persistent", [True, False])
def test_buffers_per_channel_are_cut(persistent: bool) -> None:
    class Buffers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = conv(3, 6), conv(6, 2)
            self.register_buffer("scale", torch.rand(6), persistent=persistent)
            self.register_buffer("shift", torch.rand(1, 6, 1, 1), persistent=persistent)
            self.plain = torch.rand(6, 1, 1).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.b((self.a(x) * self.scale.view(1, -1, 1, 1) + self.shift) * self.plain)

    model = scramble(Buffers())
    graph = check_exact(model, image(), sites={"a": 6})
    assert model.scale.shape[0] == model.plain.shape[0] == graph["a"].channels
    assert ("scale" in model.state_dict()) is persistent


def test_frozen_layers_stay_frozen_when_cut() -> None:
    model = scramble(nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU(), conv(6, 2))).requires_grad_(False)
    model[3].weight.requires_grad_(True)
    check_exact(model, image(), sites={"0": 6})
    assert [name for name, p in model.named_parameters() if p.requires_grad] == ["3.weight"]


def test_a_model_in_half_precision_is_cut() -> None:
    model = nn.Sequential(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU(), conv(6, 2)).bfloat16().eval()
    x = torch.randn(2, 3, 5, 5).bfloat16()
    graph = trace(model, x)
    drop = {"0": [1, 4]}
    with graph.mask(drop):
        masked = model(x)
    graph.remove(drop)
    assert model[0].weight.dtype == torch.bfloat16
    assert relative_error(masked.float(), model(x).float()) < 1e-2


# -- hooks


def logs(log: list[float]) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, output: Tensor) -> None:
        log.append(float(output.detach().numpy().mean()))

    return hook


@pytest.mark.parametrize("where", ["1", "1.0", "2"])
def test_a_hook_that_only_looks_is_no_obstacle(where: str) -> None:
    model = scramble(nn.Sequential(conv(3, 6), nn.Sequential(conv(6, 5), nn.ReLU()), conv(5, 2)))
    log: list[float] = []
    module = model.get_submodule(where)
    module.register_forward_hook(logs(log))
    module.register_forward_pre_hook(lambda module, args: print(end=str(args[0].shape[:0])))
    module.register_forward_hook(lambda module, args, kwargs, output: output, with_kwargs=True)
    check_exact(model, image(), sites={"0": 6, "1.0": 5})
    assert len(module._forward_hooks) == 2


def doubled(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return output.flip(1)


def in_place(module: nn.Module, args: Any, output: Tensor) -> None:
    output.data[:, 0] *= 2


def fussy(module: nn.Module, args: Any, output: Tensor) -> None:
    raise ValueError("not now")


@pytest.mark.parametrize(
    ("hook", "reason"),
    [(doubled, "changes what it makes"), (in_place, "writes into what it makes"), (fussy, "it raises ValueError")],
)
@pytest.mark.parametrize("where", ["1", "1.0"])
def test_a_hook_that_changes_the_output_freezes_it(where: str, hook: Callable[..., Any], reason: str) -> None:
    model = nn.Sequential(conv(3, 6), nn.Sequential(conv(6, 5)), nn.ReLU(), conv(5, 4), conv(4, 2))
    model.get_submodule(where).register_forward_hook(hook)
    before = snapshot(model)
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert same(before, snapshot(model))
    assert [s.name for s in graph.sites] == (["3"] if hook is fussy else ["0", "3"])
    assert f"'{where}' ({'Sequential' if where == '1' else 'Conv2d'}) has a forward hook that" in graph.frozen["1.0"]
    assert reason in graph.frozen["1.0"]
    assert "remove the hook before tracing" in graph.frozen["1.0"]


def test_a_hook_that_changes_the_input_freezes_it() -> None:
    model = nn.Sequential(conv(3, 6), conv(6, 5), conv(5, 2))
    model[1].register_forward_pre_hook(lambda module, args: (args[0].flip(1),))
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert [site.name for site in graph.sites] == ["1"]
    assert "'1' (Conv2d) has a forward hook that changes what it reads; remove the hook" in graph.frozen["0"]


def test_a_hook_that_writes_weights_freezes_the_layer_and_the_weights_come_back() -> None:
    model = nn.Sequential(conv(3, 6), conv(6, 5), conv(5, 2))

    def shrink(module: nn.Module, args: Any) -> None:
        module.weight.data.mul_(0.5)

    model[1].register_forward_pre_hook(shrink)
    before = snapshot(model)
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert same(before, snapshot(model))
    assert graph.sites == []
    assert "has a forward hook that writes into 'weight'" in graph.frozen["1"]


# -- inputs and outputs


class Several(nn.Module):
    """Several inputs, some of them no tensors; nested outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = conv(3, 6), conv(2, 6), conv(6, 2)

    def forward(self, x: Tensor, *more: Any, mode: str = "sum", mask: Tensor | None = None, **rest: Any) -> Any:
        y = self.a(x) + self.b(rest["other"] if rest else more[0])
        if mask is not None:
            y = y * mask
        if mode == "sum":
            return {"out": self.c(y), "more": (x, [self.c(y).sum(1)])}
        return torch.sort(y, 1)[0]


def test_several_inputs_and_nested_outputs() -> None:
    check_exact(scramble(Several()), image(), image(3, 2, 6, 6), sites={"a": 6})


def test_inputs_by_name_and_what_is_no_tensor() -> None:
    inputs = {"x": image(), "other": image(3, 2, 6, 6), "mode": "sum", "mask": image(3, 1, 6, 6)}
    check_exact(scramble(Several()), sites={"a": 6}, **inputs)
    graph = trace(Several().double(), {**inputs, "mode": "sorted"})
    assert "sort has no channel rule" in graph.frozen["a"]


def test_a_reused_module_under_two_names() -> None:
    model = Net(lambda n, x: n.c(n.b(F.relu(n.twin(n.a(x))))), a=conv(3, 6), b=conv(6, 6), c=conv(6, 2))
    model.twin = model.b
    check_exact(scramble(model), image(), sites={"a": 6})


class Moody(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_a_submodule_with_control_flow_says_what_stopped_it() -> None:
    model = scramble(nn.Sequential(conv(3, 6), nn.ReLU(), conv(6, 5), Moody(), conv(5, 2)))
    graph = check_exact(model, image(), sites={"0": 6})
    reason = graph.frozen["2"]
    assert "'3' (Moody) has no channel rule and cannot be followed: symbolically traced variables" in reason
    assert "rbprune.register_rule(its class, rule)" in reason


def test_random_depth_by_the_models_own_dice() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = conv(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            if self.training and random.random() < 0.5:
                return x
            return x + self.f(x)

    model = scramble(nn.Sequential(conv(3, 6), Block(), Block(), Block(), conv(6, 2)))
    x = image()
    before = snapshot(model)
    trace(model, x)
    assert same(before, snapshot(model))
    check_exact(model, x, sites={"0": 6})


def by_torch_rand(n: Net, x: Tensor) -> Tensor:
    y = n.a(x)
    mask = torch.rand(x.shape[0], 1, 1, 1, dtype=x.dtype) < 0.5
    keep = y.new_empty(y.size(0), 1, 1, 1).fill_(0.5)
    return n.c(y + n.b(y) * torch.rand(y.size(0), 1, 1, 1, dtype=torch.float64) * keep) + mask.sum()


def test_stochastic_depth_by_factories() -> None:
    check_exact(scramble(Net(by_torch_rand, a=conv(3, 6), b=conv(6, 6), c=conv(6, 2))), image(), sites={"a": 6})


def test_stochastic_depth_of_torchvision() -> None:
    ops = models.import_torchvision().ops
    model = Net(
        lambda n, x: n.c(n.s(n.b(F.relu(n.a(x)))) + n.a(x)),
        a=conv(3, 6),
        b=conv(6, 6),
        c=conv(6, 2),
        s=ops.StochasticDepth(0.5, "row"),
    )
    check_exact(scramble(model), image(), sites={"a": 6})


# -- the model is as it was


class Diary(nn.Module):
    """Writes into itself whenever it runs."""

    def __init__(self, stop: str = "") -> None:
        super().__init__()
        self.a, self.b, self.drop = conv(3, 6), conv(6, 2), nn.Dropout()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.register_buffer("average", torch.zeros(6))
        self.last, self.seen, self.cache, self.count = None, [], {}, 0
        self.stop = stop

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.count += 1
        y = self.drop(self.a(x))
        self.last = y
        self.seen.append(y)
        self.cache["y"] = y
        self.extra = torch.rand(3) + random.random() + np.random.rand()
        if self.stop == "raise":
            raise KeyError("the user's own")
        if self.stop == "value" and y.sum() > 0:
            return y
        return self.b(y)


class Inside(nn.Module):
    """The same as a part of a network, where it is run, not followed."""

    def __init__(self, stop: str = "") -> None:
        super().__init__()
        self.first, self.diary = conv(3, 3), Diary(stop)

    def forward(self, x: Tensor) -> Tensor:
        return self.diary(self.first(x))


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (Diary, None),
        (Inside, None),
        (lambda: Diary("raise"), UnprunableError),
        (lambda: Diary("value"), UnprunableError),
        (lambda: Inside("raise"), ModelError),
        (lambda: Inside("value"), None),
    ],
    ids=["followed", "inside", "raises", "looks at values", "raises inside", "looks at values inside"],
)
def test_a_model_that_writes_into_itself_is_as_it_was(make: Make, error: type[Exception] | None) -> None:
    model = make().train()
    model.get_submodule("diary" if isinstance(model, Inside) else "").a.eval()
    before = snapshot(model)
    if error is None:
        trace(model, torch.zeros(2, 3, 5, 5))
    else:
        with pytest.raises(error):
            trace(model, torch.zeros(2, 3, 5, 5))
    assert same(before, snapshot(model))


def test_the_error_of_an_outermost_forward_names_the_line() -> None:
    with pytest.raises(
        UnprunableError, match=r"forward of Moody cannot be traced \(.*test_hostile.py:\d+\): .*submodule"
    ):
        trace(Moody(), torch.zeros(1, 3))


def test_the_error_of_a_forward_that_fails_names_the_layer() -> None:
    with pytest.raises(ModelError, match=r"fails on the example inputs \[\(2, 4\)\] at '1': .*pass example_inputs"):
        trace(nn.Sequential(nn.Linear(4, 3), nn.Linear(4, 3)), torch.zeros(2, 4))


def test_a_lazy_layer_must_have_run() -> None:
    with pytest.raises(ModelError, match="'0.weight' has no shape yet; run the model once"):
        trace(nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)), torch.zeros(2, 4))


def test_a_model_changed_since_the_trace_is_refused_whole() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    first, second = trace(model, torch.zeros(1, 4)), trace(model, torch.zeros(1, 4))
    first.remove({"2": [0]})
    before = snapshot(model)
    with pytest.raises(
        ModelError, match="'2.weight' has 4 positions in dimension 0, this graph knows 5.*trace it again"
    ):
        second.remove({"0": [0], "2": [0]})
    assert same(before, snapshot(model))


def test_a_mask_that_is_refused_leaves_no_hook() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    graph = trace(model, torch.zeros(1, 4))
    with (
        pytest.raises(UnprunableError, match=r"channels 0\.\.4; asked to remove -1"),
        graph.mask({"0": [0], "2": [-1]}),
    ):
        pass
    assert not any(m._forward_pre_hooks for m in model.modules())
