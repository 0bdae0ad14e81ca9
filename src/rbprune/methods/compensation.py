"""When channels go, what they carried can be given to those that stay: ``prune.compensate``.

A removal is tried, measured and perhaps taken back (``cut.Transaction``), so a compensation is something that changes
the network's weights for a given choice of channels, as often as it is asked to, on the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph
from rbprune.methods.numerics import reconstruct
from rbprune.methods.numerics.patches import POINTS, is_plain, patches, places
from rbprune.methods.reader_weights import layer_weight, weight_columns, write_weights
from rbprune.utils import processes
from rbprune.utils.inputs import call, inputs_by_position
from rbprune.utils.modes import batch_normalising

RIDGE = 1e-3
"""What is added to the mean square of each input before weights are fitted, as a part of it."""
MOST_INPUTS = 8192
"""A layer with more weights in a filter is left as it is: the products of all pairs of its inputs would not fit."""
MOST_BYTES = 1 << 30
"""Layers whose products of inputs take more than this together are looked at in several passes over the data."""


class Compensation(Protocol):
    """Changes the weights of what stays, knowing what goes; the factors of the stage are folded already."""

    def __call__(self, gone: dict[str, Tensor]) -> None:
        """Make up for these channels of each site."""

    def for_other_weights(self) -> Compensation | None:
        """The same for a network with other weights, such as those of before the stage; None where there is none."""


class FactorCompensation:
    """The factors of the channels that stay change, as the curvature over all factors of the stage says."""

    def __init__(self, graph: ChannelGraph, factors: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
        self.graph, self.factors = graph, factors

    def __call__(self, gone: dict[str, Tensor]) -> None:
        for name, factor in self.factors(gone).items():
            self.graph.scale(self.graph[name], torch.where(gone[name].to(factor.device), 1, factor))

    def for_other_weights(self) -> None:
        """Nothing: the curvature is that of the network as the stage has left it."""


class WeightCompensation:
    """The weights of every layer that reads the channels are fitted anew, so that it gives what it gave before.

    For a reader y = W x + b with x the patches of its input, W_S becomes the minimiser of E||W x - W_S x_S||^2, with an
    intercept where it has a bias. The second moments of x are those of the network with nothing removed, by the
    batches' own statistics; they are taken once, when a removal is tried for the first time.
    """

    def __init__(
        self,
        graph: ChannelGraph,
        names: Sequence[str],
        batches: Iterable[Any],
        others: Iterable[Any] = (),
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.graph, self.names, self.batches, self.others = graph, names, batches, others
        self.moments: dict[str, reconstruct.Moments] | None = None
        """For each reader the second moments of what it reads."""
        readers = dict.fromkeys(p.owner for n in names for p in graph[n].parts if p.role == "in")
        left_alone = [reader for reader in readers if not _can_fit(graph, reader)]
        self.readers = [reader for reader in readers if reader not in left_alone]
        if left_alone and tell is not None:
            tell(
                f"prune.compensate='weights' leaves {', '.join(map(repr, left_alone))} as they are: only plain "
                f"convolutions of one group and linear layers with at most {MOST_INPUTS:,} inputs are fitted anew"
            )

    def for_other_weights(self) -> WeightCompensation:
        """One that takes its statistics again."""
        return WeightCompensation(self.graph, self.names, self.batches, self.others)

    def __call__(self, gone: dict[str, Tensor]) -> None:
        if self.moments is None:
            self.moments = self._look()
        for reader in self.readers:
            layer, stays = self.graph.module(reader), self._staying_columns(reader, gone)
            if bool(stays.all()):
                continue
            kept, bias = stays.nonzero().flatten(), layer.bias if isinstance(layer.bias, Tensor) else None
            filters = layer_weight(layer).detach().flatten(1).cpu().double()
            change, shift = reconstruct.take_over(
                self.moments[reader], filters, kept, ridge=RIDGE, intercept=bias is not None
            )
            shifted = None if bias is None else bias.detach() + shift.to(bias)
            write_weights(layer, kept, filters[:, kept] + change.T, shifted)

    def _staying_columns(self, reader: str, gone: dict[str, Tensor]) -> Tensor:
        """Which weights of a flattened filter stay."""
        stays = torch.ones(layer_weight(self.graph.module(reader))[0].numel(), dtype=torch.bool)
        for name, mask in gone.items():
            site = self.graph[name]
            for part in site.parts:
                if part.role == "in" and part.owner == reader:
                    stays[weight_columns(self.graph, site, part)[mask.cpu()].flatten()] = False
        return stays

    def _look(self) -> dict[str, reconstruct.Moments]:
        """The second moments of what all readers read, over the recalibration's batches or, without any, the others."""
        found: dict[str, reconstruct.Moments] = {}
        for readers in self._groups():
            samples = {r: reconstruct.Moments(layer_weight(self.graph.module(r))[0].numel(), 0) for r in readers}
            handles = [self.graph.module(r).register_forward_hook(_Look(m)) for r, m in samples.items()]
            handles += [inputs_by_position(self.graph.module(r)) for r in samples]
            try:
                with batch_normalising(self.graph.model), torch.no_grad():
                    seen = self._show(self.batches) or self._show(self.others)
            finally:
                for handle in handles:
                    handle.remove()
            if not seen:
                raise ConfigError(
                    "prune.compensate='weights' fits weights to what layers read, and there is no batch to see that "
                    "by; give inputs to stage.finish(batches=...), or call Pruner.measure before the first stage"
                )
            found |= samples
        for reader in self.readers:
            _share(found[reader], layer_weight(self.graph.module(reader)).device)
        return found

    def _show(self, batches: Iterable[Any]) -> int:
        count = 0
        for inputs in batches:
            call(self.graph.model, inputs)
            count += 1
        return count

    def _groups(self) -> Iterator[list[str]]:
        """The readers, as many at once as fit."""
        group: list[str] = []
        size = 0
        for reader in self.readers:
            needed = 8 * layer_weight(self.graph.module(reader))[0].numel() ** 2
            if group and size + needed > MOST_BYTES:
                yield group
                group, size = [], 0
            group, size = [*group, reader], size + needed
        yield from [group] if group else []


class _Look:
    """A forward hook that takes in what a layer reads."""

    def __init__(self, moments: reconstruct.Moments) -> None:
        self.moments = moments

    def __call__(self, layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        x = args[0]
        if isinstance(layer, nn.Linear) and x.dim() > 2:
            tokens = x.flatten(1, -2)
            x = tokens[:, torch.randint(tokens.shape[1], (POINTS,), device=x.device)].flatten(0, 1)
        read = patches(layer, x, places(layer, output)).flatten(1)
        self.moments.add(read, read[:, :0])


def _can_fit(graph: ChannelGraph, reader: str) -> bool:
    layer = dict(graph.model.named_modules(remove_duplicate=False)).get(reader)
    if layer is None or not is_plain(layer) or not isinstance(layer.weight, nn.Parameter):
        return False
    return layer.weight[0].numel() <= MOST_INPUTS


def _share(moments: reconstruct.Moments, device: torch.device) -> None:
    """Every process has seen other examples, and all must come to the same weights."""
    if processes.world() > 1:
        moments.count = round(float(processes.mean(torch.tensor(float(moments.count), device=device))))
        moments.gram = processes.mean(moments.gram.to(device)).cpu()
        moments.x_sum = processes.mean(moments.x_sum.to(device)).cpu()
