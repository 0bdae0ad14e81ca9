"""What the tests of unusual models share: exactness on all outputs, and a picture of all that a model is."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import rbprune
from rbprune import trace
from tests.networks import random_drop, relative_error


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
