"""One network after the other: traced, a part of every site removed, and compared with the masked one in float64."""

from __future__ import annotations

import copy
import random
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_leaves

from rbprune import trace
from rbprune.errors import RbpruneError
from rbprune.graph import ChannelGraph
from tests.networks import left_alone, random_drop, relative_error, scatter
from tests.torture.networks import Network

MOST_PARAMETERS = 60_000_000
EXACT = 1e-8
"""Masked and removed may differ by so much, relative to the largest value, in float64."""
_SIZES = {2: (32, 64, 96, 128, 160, 224, 256), 3: (16, 32, 64)}


@dataclass
class NetworkFigures:
    """What became of the networks of one library."""

    library: str
    tried: int = 0
    exact: int = 0
    wrong: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    """Networks of which something else came out than an error of ours."""
    refused: list[str] = field(default_factory=list)
    without_sites: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    convolutions: int = 0
    in_a_site: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Why convolutions are in no site, by kind of reason."""
    largest: float = 0.0

    def line(self) -> str:
        share = f"{self.in_a_site} of {self.convolutions} convolutions in a site"
        counts = f"{self.exact} exact (largest difference {self.largest:.0e}), {len(self.wrong)} wrong"
        rest = (
            f"{len(self.refused)} refused, {len(self.foreign)} foreign errors, {len(self.without_sites)} without a site"
        )
        return f"{self.library}: {self.tried} networks, {counts}, {rest}; {share}"


def try_network(network: Network, figures: NetworkFigures) -> None:
    """Trace and cut one network and note what came of it."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = network.make()
        except Exception as cause:  # the library's own matter
            figures.skipped.append(f"{network.name}: cannot be made: {cause}")
            return
        if sum(p.numel() for p in model.parameters()) > MOST_PARAMETERS:
            figures.skipped.append(f"{network.name}: more than {MOST_PARAMETERS} parameters")
            return
        _prepare(model)
        inputs = _inputs(network, model)
        x = next(inputs, None)
        if x is None:
            figures.skipped.append(f"{network.name}: accepts no image of our sizes in both modes")
            return
        figures.tried += 1
        try:
            graph = trace(model, x)
            _note_sites(model, graph, figures)
            if not graph.sites:
                figures.without_sites.append(network.name)
                return
            error = _difference(model, graph, chain([x], inputs) if network.inputs is None else [x])
        except RbpruneError as error_of_ours:
            figures.refused.append(f"{network.name}: {error_of_ours}")
            return
        except Exception as anything:
            figures.foreign.append(f"{network.name}: {type(anything).__name__}: {anything}")
            return
    if error < EXACT:
        figures.exact += 1
        figures.largest = max(figures.largest, error)
    else:
        figures.wrong.append(f"{network.name}: {error}")


def try_networks(networks: Iterable[Network]) -> dict[str, NetworkFigures]:
    """Figures for each library."""
    found: dict[str, NetworkFigures] = {}
    begun = time.monotonic()
    for network in networks:
        figures = found.setdefault(network.library, NetworkFigures(network.library))
        try_network(network, figures)
        print(f"{time.monotonic() - begun:5.0f} s  {network.name}  {figures.line()}", flush=True)
    return found


def _prepare(model: nn.Module) -> None:
    """Values as after training, in float64, and nothing that throws dice: what is removed would change the throws."""
    model.double().eval().requires_grad_(True)
    for module in model.modules():
        if isinstance(module, _BatchNorm) and module.running_mean is not None:
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
        for name, value in list(vars(module).items()):
            chance = (
                "p",
                "drop_prob",
                "dropout",
                "drop",
                "dropout_rate",
                "drop_rate",
                "layerdrop",
                "drop_connect_rate",
            )
            if name in chance and isinstance(value, float):
                setattr(module, name, 0.0)
    scatter(model)


def _inputs(network: Network, model: nn.Module) -> Iterator[Tensor]:
    """Three examples each, of the sizes that the network accepts in both modes and at which it is well conditioned, the
    smallest first."""
    if network.inputs is not None:
        yield torch.randn(*network.inputs, dtype=torch.float64)
        return
    fixed = getattr(model, "default_cfg", {}).get("fixed_input_size") and model.default_cfg["input_size"][-1]
    for size in (fixed,) if fixed else _SIZES[network.dims]:
        x = torch.randn(3, network.channels, *[size] * network.dims, dtype=torch.float64)
        if _is_well_conditioned(model, x):
            yield x


def _is_well_conditioned(model: nn.Module, x: Tensor) -> bool:
    """Whether a network runs in both modes and weights that differ in their last digits give the same outputs.

    Batch normalisation over few values can make much of nothing; then masked and removed cannot be compared.
    """
    twin = _with_other_last_digits(model)
    try:
        return all(
            relative_error(a, b) < EXACT / 10
            for training in (False, True)
            for a, b in zip(_outputs(model, x, training), _outputs(twin, x, training), strict=True)
            if a.numel()
        )
    except Exception:
        return False  # another size may do


def _with_other_last_digits(model: nn.Module) -> nn.Module:
    """A copy whose weights differ by their last digits."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1 + 1e-15 * torch.randn_like(parameter))
    return twin


def _outputs(model: nn.Module, x: Tensor, training: bool) -> list[Tensor]:
    """All that a network returns, in one mode; its buffers are afterwards what they were."""
    torch.manual_seed(3)
    random.seed(3)
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    with torch.no_grad():
        found: Any = model.train(training)(x.clone())
        for buffer, value in before:
            buffer.copy_(value)
    model.eval()
    values = tree_leaves(found.to_tuple() if hasattr(found, "to_tuple") else found)
    return [value for value in values if isinstance(value, Tensor) and value.is_floating_point()]


def _difference(model: nn.Module, graph: ChannelGraph, inputs: Iterable[Tensor]) -> float:
    """The largest relative difference of the masked and the removed network, in both modes and on all outputs, for the
    first input at which the masked one is well conditioned (or the last)."""
    drop = random_drop(graph)
    with graph.mask(drop):
        for x in inputs:
            if _is_well_conditioned(model, x):
                break
        masked = [_outputs(model, x, training) for training in (False, True)]
    graph.remove(drop)
    errors = []
    for training, wanted in zip((False, True), masked, strict=True):
        found = _outputs(model, x, training)
        if [value.shape for value in found] != [value.shape for value in wanted]:
            return float("inf")
        errors += [relative_error(a, b) for a, b in zip(wanted, found, strict=True) if a.numel()]
    return max(error if error == error else float("inf") for error in errors)


def _note_sites(model: nn.Module, graph: ChannelGraph, figures: NetworkFigures) -> None:
    """Which convolutions are in a site, and why the others are not."""
    covered = {part.owner for site in graph.sites for part in site.parts}
    convolutions = [name for name, module in model.named_modules() if isinstance(module, _ConvNd)]
    figures.convolutions += len(convolutions)
    figures.in_a_site += sum(name in covered for name in convolutions)
    assert all(left_alone(model, graph).values()), "a convolution stays without a reason"
    figures.reasons.update(graph.frozen[name].kind.name for name in convolutions if name not in covered)
