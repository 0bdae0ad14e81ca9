"""Torch-Pruning as a measured peer: its pruners choose the channels, our engine trains, cuts and counts.

They see the same sites as every other method and the same number of MACs: the ratio that they ask for is found by
bisection. With ``prune.sums`` they are as free as their users leave them: only the layers that make the network's
output are closed. What they would remove is noted from a copy of the network and cut by our graph, which leaves the
same tensors (tests/graph/test_oracle.py). An optional extra: pip install 'rbprune[peers]'.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rbprune.errors import ConfigError
from rbprune.graph import ChannelGraph, Site
from rbprune.graph.cost import amount
from rbprune.methods.settings import StageContext
from rbprune.methods.stage import Stage
from rbprune.methods.verdict import Verdict

TRIALS = 12
"""Ratios tried by the bisection."""


def import_torch_pruning() -> Any:
    """The package, or an error that says how to get it."""
    try:
        import torch_pruning
    except ImportError as error:
        raise ConfigError("methods tp-... need torch-pruning: pip install 'rbprune[peers]'") from error
    return torch_pruning


class PeerStage(Stage):
    """Base: magnitude (L2 norm of filters), the same share of every layer, as its quick start does."""

    diagnostic = "removed"
    needs_ratio = True
    cuts_itself = True
    trains = False
    everywhere: ClassVar[bool] = False
    """One ranking over all layers."""

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        coupled = any(len(graph[name].producers) > 1 for name in names)
        model = copy.deepcopy(graph.model) if coupled else None  # before anything hangs on it
        super().__init__(graph, names, context, remember=remember)
        if model is not None:
            self._check_coupling(model)

    def _check_coupling(self, model: nn.Module) -> None:
        """Refuse a network that torch-pruning does not follow now, not after it was trained."""
        package = import_torch_pruning()
        arguments = self.arguments(model, 0.5) | {"importance": package.importance.MagnitudeImportance(p=2)}
        model.requires_grad_(True)
        try:
            removed = _removed_outputs(package.pruner.BasePruner(model, **arguments), model)
            for site in self.sites:
                self._choice_in(site, removed)
        except ConfigError:
            self.abandon()
            raise

    def importance(self) -> Any:
        """The criterion of torch-pruning by which channels are ranked."""
        return import_torch_pruning().importance.MagnitudeImportance(p=2)

    def pruner(self, model: nn.Module, ratio: float) -> Any:
        """The pruner of torch-pruning that asks for this ratio."""
        return import_torch_pruning().pruner.BasePruner(model, **self.arguments(model, ratio))

    def arguments(self, model: nn.Module, ratio: float) -> dict[str, Any]:
        """Open are only the layers that make channels of this stage's sites or, as depthwise ones, carry them."""
        makers = {part.owner for site in self.sites for part in site.parts if part.role in ("out", "along")}
        layers = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd)]
        return {
            "example_inputs": self.graph.example_inputs,
            "importance": self.importance(),
            "pruning_ratio": ratio,
            "max_pruning_ratio": 1 - self.settings.least,
            "global_pruning": self.everywhere,
            "ignored_layers": [m for n, m in layers if n not in makers],
        }

    def choose(self, ratio: float) -> dict[str, torch.Tensor]:
        """Which channels of each site it would remove at this ratio."""
        model = copy.deepcopy(self.graph.model)
        for mine, theirs in zip(self.graph.model.parameters(), model.parameters(), strict=True):
            theirs.grad = None if mine.grad is None else mine.grad.clone()
            theirs.requires_grad_(True)
        removed = _removed_outputs(self.pruner(model, ratio), model)
        return {site.name: self._choice_in(site, removed) for site in self.sites}

    def _choice_in(self, site: Site, removed: dict[str, set[int]]) -> Tensor:
        """Which channels of a site go with these outputs of its producers, which must tell the same of all of them."""
        found = {}
        for part in site.parts:
            if part.role == "out":
                outputs, places = removed.get(part.owner, set()), self.graph.places(site, part)
                found[part.owner] = torch.tensor([any(int(p) in outputs for p in row) for row in places])
        first, mask = next(iter(found.items()))
        other = next((owner for owner, theirs in found.items() if not torch.equal(theirs, mask)), None)
        if other is not None:
            raise ConfigError(
                f"torch-pruning would not remove the same channels of {first!r} and {other!r}, which are added up in "
                f"site {site.name!r}: it does not follow this network (it takes a zero-padded shortcut for an "
                "identity); leave the sums alone with prune.sums=false, or take a network whose shortcuts are "
                "convolutions, such as resnet20b-cifar"
            )
        return mask

    def judge(self) -> dict[str, Verdict]:
        self.loop.detach()  # a copy of the model must not copy us
        target = self.context.target
        assert target is not None
        low, high, best = 0.0, 1.0, None
        for _ in range(TRIALS):
            ratio = (low + high) / 2
            chosen = self.choose(ratio)
            small = target.cost.without(self.graph, {n: int(m.sum()) for n, m in chosen.items()}) <= target.limit
            low, high, best = (low, ratio, chosen) if small else (ratio, high, best)
        if best is None:
            raise ConfigError(
                f"torch-pruning cannot reach {amount(target.cost, target.limit)}: its criterion leaves too many "
                "channels (tp-bn sees only those with batch normalisation); ask for less (a lower ratio)"
            )
        self.graph.model.zero_grad(set_to_none=True)
        return {name: Verdict(mask.double(), mask) for name, mask in best.items()}


def _removed_outputs(pruner: Any, model: nn.Module) -> dict[str, set[int]]:
    """For each layer the outputs that a pruner of torch-pruning would remove."""
    names = {module: name for name, module in model.named_modules()}
    gone: dict[str, set[int]] = {}
    for group in pruner.step(interactive=True):
        for dependency, positions in group:
            if pruner.DG.is_out_channel_pruning_fn(dependency.handler):
                gone.setdefault(names.get(dependency.target.module, ""), set()).update(positions)
    return gone


class PeerTaylor(PeerStage):
    """Torch-pruning with its group Taylor importance, one ranking over all layers."""

    observes = True
    everywhere = True

    def importance(self) -> Any:
        return import_torch_pruning().importance.GroupTaylorImportance()

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        super().__init__(graph, names, context, remember=remember)
        self._gradients: dict[str, Tensor] = {}

    def before_step(self) -> None:
        self._observed = True
        for name, parameter in self.graph.model.named_parameters():
            if parameter.grad is not None:
                before = self._gradients.get(name)
                self._gradients[name] = parameter.grad.clone() if before is None else before + parameter.grad

    def judge(self) -> dict[str, Verdict]:
        for name, parameter in self.graph.model.named_parameters():
            parameter.grad = self._gradients.get(name)
        return super().judge()


class _Regularised(PeerStage):
    """Base of the pruners with sparse training: they change the gradients before every step."""

    trains = True
    everywhere = True

    def __init__(self, graph: ChannelGraph, names: list[str], context: StageContext, *, remember: bool = True) -> None:
        super().__init__(graph, names, context, remember=remember)
        with torch.enable_grad():
            self._live = self.pruner(graph.model, 0.5)
        self._live.update_regularizer()

    def before_step(self) -> None:
        self._live.regularize(self.graph.model)


class PeerBN(_Regularised):
    """Torch-pruning with its batch-normalisation pruner (slimming)."""

    def importance(self) -> Any:
        return import_torch_pruning().importance.BNScaleImportance()

    def pruner(self, model: nn.Module, ratio: float) -> Any:
        return import_torch_pruning().pruner.BNScalePruner(model, **self.arguments(model, ratio), reg=1e-4)


class PeerGroup(_Regularised):
    """Torch-pruning with its group-norm pruner (DepGraph with sparse training), its strongest."""

    def importance(self) -> Any:
        return import_torch_pruning().importance.GroupMagnitudeImportance(p=2)

    def pruner(self, model: nn.Module, ratio: float) -> Any:
        return import_torch_pruning().pruner.GroupNormPruner(model, **self.arguments(model, ratio), reg=5e-4)
