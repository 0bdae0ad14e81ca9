"""ThiNet: channels that the next layer misses least, found greedily on samples of its output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.graph import ChannelGraph
from rbprune.graph.sites import Part
from rbprune.methods.numerics import reconstruct
from rbprune.methods.numerics.patches import check_layer, patches, places
from rbprune.methods.settings import StageContext
from rbprune.methods.stage import Stage
from rbprune.methods.verdict import Verdict
from rbprune.utils.checked_calls import outputs_of
from rbprune.utils.inputs import inputs_by_position
from rbprune.utils.modes import evaluating


class ReconstructionStage(Stage):
    """Base of both methods: it watches what the consumers of a site read, one site per stage."""

    diagnostic = "order of removal"
    trains = False
    observes = True
    observe_share = 1 / 3
    needs_ratio = True
    cuts_itself = True
    refits = True

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        super().__init__(graph, names, context, remember=remember)
        (self.site,) = self.sites
        self.count = round(context.shares[self.site.name] * self.site.channels)
        self.parts = [part for part in self.site.parts if part.role == "in"]
        for part in self.parts:
            check_layer(graph.module(part.owner), part.owner)

    def observe_recent(self) -> None:
        """The inputs of the loop's last steps serve as well as any others."""
        self.observe(((inputs, None) for inputs in list(self.loop.recent)), None)

    def by_channel(self, part: Part, columns: Tensor) -> Tensor:
        """Columns of a layer's input (dimension 1), those of each channel of the site together: [n, channels, rest]."""
        return columns[:, self.graph.places(self.site, part).to(columns.device)].flatten(2)

    def removal(self, removed: Tensor) -> dict[str, Verdict]:
        """The verdict that these channels go, the first of them first."""
        value = torch.zeros(self.site.channels, dtype=torch.float64)
        value[removed] = torch.arange(len(removed), 0, -1, dtype=torch.float64)
        return {self.site.name: Verdict(value, value > 0)}

    def run(self, batches: Iterable[tuple[Any, Any]], *models: nn.Module) -> Iterable[None]:
        """Show each batch to the models, in evaluation and without gradients."""
        with evaluating(*models), torch.no_grad():
            for inputs, _ in batches:
                for model in models:
                    outputs_of(model, inputs, "a batch that the method observes before it judges")
                yield


class ThiNetStage(ReconstructionStage):
    """Removed are the channels whose joint contribution to the next layer is smallest; the others are rescaled."""

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        super().__init__(graph, names, context, remember=remember)
        self.gram = torch.zeros(self.site.channels, self.site.channels, dtype=torch.float64)

    def observe(self, batches: Iterable[tuple[Any, Any]], loss_fn: Any) -> None:
        self._observed = True

        def see(part: Part) -> Any:
            def hook(layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
                self._add(part, layer, args[0], output)

            return self.graph.module(part.owner).register_forward_hook(hook)

        handles = [see(part) for part in self.parts]
        handles += [inputs_by_position(self.graph.module(part.owner)) for part in self.parts]
        try:
            for _ in self.run(batches, self.graph.model):
                pass
        finally:
            for handle in handles:
                handle.remove()

    def _add(self, part: Part, layer: nn.Module, x: Tensor, output: Tensor) -> None:
        """x_j = sum over the kernel of W[f, j] input_j, for random places and filters f."""
        read = patches(layer, x, places(layer, output)).double()
        weight = self._weight(layer)
        filters = torch.randint(len(weight), (len(read),), device=weight.device)
        share = self.by_channel(part, read * weight[filters]).sum(2).cpu()
        self.gram += share.T @ share

    def _weight(self, layer: nn.Module) -> Tensor:
        weight = layer.weight
        assert isinstance(weight, Tensor)
        return weight.detach().double().flatten(2) if weight.dim() > 2 else weight.detach().double().unsqueeze(-1)

    def judge(self) -> dict[str, Verdict]:
        verdict = self.removal(reconstruct.greedy(self.gram, self.count))[self.site.name]
        kept = (~verdict.redundant).nonzero().flatten()
        cross = self.gram.sum(1)  # y is the sum of all contributions
        factor = torch.ones(self.site.channels, dtype=torch.float64)
        factor[kept] = reconstruct.rescale(self.gram, cross, kept)
        w = factor * ~verdict.redundant
        error = self.gram.sum() - 2 * w @ cross + w @ self.gram @ w
        self.notes[self.site.name] = float((error / self.gram.sum().clamp_min(1e-30)).clamp_min(0).sqrt())
        return {self.site.name: Verdict(verdict.value, verdict.redundant, factor)}
