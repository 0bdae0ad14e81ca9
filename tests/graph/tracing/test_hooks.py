"""Forward hooks: those that only look are no obstacle, those that change something freeze it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rbprune import trace
from tests.graph.hostile import check_exact, image, same, snapshot
from tests.graph.operations import conv
from tests.networks import scramble


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
    assert f"'{where}' ({'Sequential' if where == '1' else 'Conv2d'}) has a forward hook that" in str(
        graph.frozen["1.0"]
    )
    assert reason in str(graph.frozen["1.0"])
    assert "remove the hook before tracing" in str(graph.frozen["1.0"])


def test_a_hook_that_changes_the_input_freezes_it() -> None:
    model = nn.Sequential(conv(3, 6), conv(6, 5), conv(5, 2))
    model[1].register_forward_pre_hook(lambda module, args: (args[0].flip(1),))
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert [site.name for site in graph.sites] == ["1"]
    assert "'1' (Conv2d) has a forward hook that changes what it reads; remove the hook" in str(graph.frozen["0"])


def test_a_hook_that_writes_weights_freezes_the_layer_and_the_weights_come_back() -> None:
    model = nn.Sequential(conv(3, 6), conv(6, 5), conv(5, 2))

    def shrink(module: nn.Module, args: Any) -> None:
        module.weight.data.mul_(0.5)

    model[1].register_forward_pre_hook(shrink)
    before = snapshot(model)
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert same(before, snapshot(model))
    assert graph.sites == []
    assert "has a forward hook that writes into 'weight'" in str(graph.frozen["1"])
