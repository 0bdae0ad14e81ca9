"""Channel Pruning: channels chosen by the lasso on the next layer's output, whose weights are then fitted anew."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph
from rbprune.graph.sites import Part
from rbprune.methods.numerics import lasso, reconstruct
from rbprune.methods.numerics.patches import at, patches, places
from rbprune.methods.reader_weights import weight_columns, write_weights
from rbprune.methods.settings import StageContext
from rbprune.methods.thinet import ReconstructionStage
from rbprune.methods.verdict import Verdict
from rbprune.utils.inputs import inputs_by_position


class _Samples:
    """What one consumer read in the network as it is, and what it gave in the dense one, at the same places."""

    def __init__(self, part: Part, inputs: int, filters: Tensor) -> None:
        self.part, self.filters = part, filters
        self.moments = reconstruct.Moments(inputs, len(filters))
        self.energy = 0.0
        self.bias: Tensor | None = None
        """The bias of the consumer in the dense network."""
        self._read: Tensor | None = None
        self._where: list[tuple[int, ...]] = []

    def read(self, layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        """Forward hook of the consumer as it is."""
        self._where = places(layer, output)
        self._read = patches(layer, args[0], self._where).flatten(1)

    def wanted(self, layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        """Forward hook of the dense consumer, called after the other."""
        assert self._read is not None
        filters = self.filters.to(output.device)
        target = at(output, self._where)[:, filters].double()
        if isinstance(layer.bias, Tensor):
            self.bias = layer.bias.detach()[filters]
            target = target - self.bias
        self.moments.add(self._read, target)
        self.energy += float(target.square().sum())


class CPStage(ReconstructionStage):
    """min ||Y - sum_i beta_i X_i W_i^T||^2 + lambda ||beta||_1 with X of the network as it is, Y of the dense one."""

    needs_dense = True

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        super().__init__(graph, names, context, remember=remember)
        self.samples = []
        for part in self.parts:
            weight = graph.module(part.owner).weight
            assert isinstance(weight, Tensor)
            self.samples.append(_Samples(part, weight[0].numel(), graph.outputs(part.owner)))

    def observe(self, batches: Iterable[tuple[Any, Any]], loss_fn: Any) -> None:
        self._observed = True
        dense = self.context.dense
        if dense is None:
            raise ConfigError("cp compares with the network before any cut; set pruner.dense to a copy of it")
        layers = dict(dense.named_modules())
        handles = [self.graph.module(s.part.owner).register_forward_hook(s.read) for s in self.samples]
        handles += [inputs_by_position(self.graph.module(s.part.owner)) for s in self.samples]
        handles += [layers[s.part.owner].register_forward_hook(s.wanted) for s in self.samples]
        try:
            for _ in self.run(batches, self.graph.model, dense):
                pass
        finally:
            for handle in handles:
                handle.remove()

    def judge(self) -> dict[str, Verdict]:
        size = self.site.channels
        gram, cross = torch.zeros(size, size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
        for s in self.samples:
            layer = self.graph.module(s.part.owner)
            filters = layer.weight.detach().double().cpu().flatten(1)  # type: ignore[union-attr, operator]
            columns, count = weight_columns(self.graph, self.site, s.part), max(1, s.moments.count * len(filters))
            products = s.moments.gram * (filters.T @ filters)
            gram += products[columns][:, :, columns].sum((1, 3)) / count
            others = self._others(s, columns)
            wanted = s.moments.cross - s.moments.gram[:, others] @ filters[:, others].T
            cross += (filters.T * wanted).sum(1)[columns].sum(1) / count
        kept = lasso.select(gram, cross, size - self.count)
        removed = torch.ones(size, dtype=torch.bool)
        removed[kept] = False
        gone = removed.nonzero().flatten()
        order = gone[gram.diagonal()[gone].argsort()]
        return self.removal(order)

    def _others(self, samples: _Samples, columns: Tensor) -> Tensor:
        """Weights of a filter that read other sites; what they bring is not for this one to rebuild."""
        others = torch.ones(samples.moments.inputs, dtype=torch.bool)
        others[columns.flatten()] = False
        return others

    def before_cut(self, gone: dict[str, Tensor]) -> None:
        """One least-squares fit of the kept weights, with an intercept that goes to the bias where there is one."""
        kept = (~gone[self.site.name]).nonzero().flatten()
        error = energy = 0.0
        for s in self.samples:
            layer = self.graph.module(s.part.owner)
            own = weight_columns(self.graph, self.site, s.part)
            used = torch.cat([own[kept].flatten(), self._others(s, own).nonzero().flatten()]).sort().values
            fitted, intercept = reconstruct.refit(s.moments, used)
            write_weights(layer, used, fitted.T, None if s.bias is None else s.bias + intercept.to(s.bias))
            part = s.moments.gram[used][:, used]
            rebuilt = fitted.T @ part @ fitted
            error += s.energy - 2 * float((fitted * s.moments.cross[used]).sum()) + float(rebuilt.trace())
            error += -2 * float(intercept @ (s.moments.y_sum - fitted.T @ s.moments.x_sum[used]))
            error += s.moments.count * float(intercept @ intercept)
            energy += s.energy
        self.notes[self.site.name] = max(0.0, error / max(energy, 1e-30)) ** 0.5
