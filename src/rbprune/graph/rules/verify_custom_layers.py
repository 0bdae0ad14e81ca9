"""Convolutions, linear layers and group norms with a forward of their own (padding, scaling, another type of numbers,
...), verified by cutting them.

A copy is cut; where it then computes what the whole one computes without those channels, the layer has the rule of its
kind, and the graph does not look inside.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from rbprune.graph.cutting.surgery import keep_positions
from rbprune.graph.layer_table import Rule, computes_as_torch, set_width
from rbprune.graph.rules.layers import convolution, linear
from rbprune.graph.rules.norms import group_norm
from rbprune.graph.sites import Role


def custom_layers(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """The convolutions, linear layers and group norms among modules that have a forward of their own."""
    return [m for m in modules if isinstance(m, _ConvNd | nn.Linear | nn.GroupNorm) and _has_forward_of_its_own(m)]


def verify_custom_layers(layers: list[nn.Module]) -> dict[nn.Module, Rule]:
    """Those of such layers that turn out to be like any other, each with its rule.

    To be called before the model's forward is followed, since theirs must run.
    """
    return {m: _rule(m) for m in layers if _can_be_cut(m)}


def _rule(module: nn.Module) -> Rule:
    if isinstance(module, nn.GroupNorm):
        return group_norm
    return linear if isinstance(module, nn.Linear) else convolution


def _has_forward_of_its_own(module: nn.Module) -> bool:
    """Whether its class computes something of its own from nothing but a weight and a bias; it may have children
    without parameters and buffers (padding, an activation)."""
    if "forward" in vars(module) or computes_as_torch(module) or set(module._parameters) != {"weight", "bias"}:
        return False
    return {name for name, _ in (*module.named_parameters(), *module.named_buffers())} <= {"weight", "bias"}


def _can_be_cut(module: Any) -> bool:
    """Whether copies of the layer, cut, compute what it computes, in evaluation and in training."""
    depthwise = isinstance(module, _ConvNd) and module.groups > 1 and module.groups == module.in_channels
    transposed = isinstance(module, _ConvTransposeNd)
    if isinstance(module, _ConvNd) and (transposed or (module.groups > 1 and not depthwise)):
        return False
    along = depthwise or isinstance(module, nn.GroupNorm)
    try:
        with torch.no_grad():
            return all(_equals_its_cut(module, training, along) for training in (False, True))
    except Exception:  # whatever it needs to run, we do not know it
        return False


def _equals_its_cut(module: Any, training: bool, along: bool) -> bool:
    """Whether the outputs that are left, of the inputs that are left, are what they were with zeros for the others.

    ``along`` says that the layer carries channels: outputs are those of the inputs.
    """
    whole = copy.deepcopy(module).double().train(training)
    x = _example(whole)
    ins, outs = torch.arange(x.shape[1])[::2], torch.arange(len(whole.weight))[::2]
    if isinstance(whole, nn.GroupNorm):  # it loses whole groups
        ins = outs = torch.arange(x.shape[1]).view(whole.num_groups, -1)[::2].flatten()
    elif along:
        outs = torch.arange(len(whole.weight)).view(x.shape[1], -1)[ins].flatten()
    cut = copy.deepcopy(whole)
    cuts: list[tuple[Role, int, Tensor]] = [("along", 0, outs)] if along else [("out", 0, outs), ("in", 1, ins)]
    for role, dim, kept in cuts:
        keep_positions(cut, "weight", dim, kept)
        set_width(cut, role, len(kept))
    keep_positions(cut, "bias", 0, outs)
    masked = torch.zeros_like(x)
    masked[:, ins] = x[:, ins]
    expected, found = _run(whole, masked)[:, outs], _run(cut, x[:, ins])
    return expected.shape == found.shape and torch.allclose(expected, found, rtol=1e-9, atol=1e-12)


def _example(layer: Any) -> Tensor:
    """A random input that the layer accepts."""
    if isinstance(layer, nn.Linear):
        return torch.randn(2, layer.in_features, dtype=torch.float64)
    if isinstance(layer, nn.GroupNorm):
        return torch.randn(2, layer.num_channels, 3, 4, dtype=torch.float64)
    space = [2 * d * k for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    return torch.randn(2, layer.in_channels, *space, dtype=torch.float64)


def _run(layer: nn.Module, x: Tensor) -> Tensor:
    """The layer's output, with the same random numbers at every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        result: Tensor = layer(x)
        return result
