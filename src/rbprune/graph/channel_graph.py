"""The channel graph of a model: its sites, their masks, and their removal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rbprune.errors import ModelError, UnprunableError, nearest
from rbprune.graph import layer_shares
from rbprune.graph.branch import Branch, is_replaced
from rbprune.graph.cost import MACS, PARAMS, LayerCost
from rbprune.graph.cutting.history import CutHistory, note_cuts, read_cuts, tensor_shapes
from rbprune.graph.cutting.masking import multiply_input, multiply_output
from rbprune.graph.cutting.plan import Plan, RemovedBlock
from rbprune.graph.cutting.remove_branches import check_branches, find_branch, fold_into_output, remove_branches
from rbprune.graph.cutting.surgery import check_width, find_tensor, keep_positions, multiply, weights_of
from rbprune.graph.latency_table import LatencyTable
from rbprune.graph.layer_table import refresh_counts, set_width
from rbprune.graph.reasons import Reason
from rbprune.graph.sites import Axis, Part, Role, Site, layer_at, places_of
from rbprune.graph.size_attributes import set_size


class ChannelGraph:
    """Made by ``rbprune.trace``. Channels are numbered as they are in the network now."""

    def __init__(
        self,
        model: nn.Module,
        sites: list[Site],
        frozen: dict[str, Reason],
        axes: list[Axis],
        applied: dict[str, int],
        fixed: dict[str, tuple[int, int, str]],
        branches: dict[str, Branch],
        frozen_branches: dict[str, Reason],
        example_inputs: Any,
    ) -> None:
        self.example_inputs = example_inputs
        self.branches = branches
        """Branches of residual blocks that can be removed whole, by the name of the block."""
        self.frozen_branches = frozen_branches
        """Other branches beside an identity, each with the reason why it stays."""
        self.removed_blocks: dict[str, RemovedBlock] = {}
        """The blocks whose branch has been removed since the trace."""
        self.gone_sites: dict[str, int] = {}
        """The sites that went with a branch, each with the channels that it once had."""
        self.model = model
        self.sites = sites
        self.frozen = frozen
        """Modules whose outputs may not be removed, each with the reason."""
        self._by_name: dict[str, Site] = {**branches, **{site.name: site for site in sites}}
        self._applied = applied
        self._fixed = [LayerCost(name, kind, macs, params) for name, (macs, params, kind) in fixed.items()]
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._axes = {(axis.owner, axis.role): axis for axis in axes}
        self.latency: LatencyTable | None = None
        """What layers of the network take on some device, where it was measured (``LatencyTable.use``)."""
        self.earlier: CutHistory | None = read_cuts(model)
        """The cuts that the network had behind it when it was traced."""
        self._shapes: dict[str, list[int]] = {}
        on = {(part.owner, part.role) for site in sites for part in site.parts}
        self._alive: dict[tuple[str, Role], Tensor] = {
            axis: torch.arange(len(known.ids)) for axis, known in self._axes.items() if axis in on
        }

    def __getitem__(self, name: str) -> Site:
        if name in self._by_name:
            return self._by_name[name]
        names, frozen = list(self._by_name), self.frozen_branches | self.frozen
        reason = f"; it is frozen: {frozen[name]}" if name in frozen else nearest(name, names)
        raise UnprunableError(f"there is no site {name!r}{reason}; the sites are {', '.join(names[:8])} ...")

    def __contains__(self, name: object) -> bool:
        """Whether there is (still) a site or a branch of that name."""
        return name in self._by_name

    def channels_left(self, name: str) -> int:
        """The channels of a site that are left: none where it is gone."""
        return self._by_name[name].channels if name in self._by_name else 0

    def module(self, name: str) -> nn.Module:
        """The module of that name."""
        return self._modules[name]

    def is_module(self, name: str) -> bool:
        """Whether the owner of an axis is a module; else it is a parameter or buffer that is used by itself."""
        return name in self._modules

    def places(self, site: Site, part: Part) -> Tensor:
        """Positions now, on the part's axis, of the channels that are left: [channels, positions per channel]."""
        return torch.searchsorted(self._alive[part.owner, part.role], part.positions[site.alive])

    def weight_along(self, part: Part) -> tuple[Tensor, int]:
        """The first tensor that has the part's axis (a layer's weight), and the dimension it is."""
        name, dim = self._axes[part.owner, part.role].tensors[0]
        weight = find_tensor(self.model, name)[2]
        assert weight is not None
        return weight, dim

    def outputs(self, owner: str) -> Tensor:
        """Positions, in the network as it was traced, of the outputs that a layer still has."""
        key: tuple[str, Role] = (owner, "out")
        return self._alive[key] if key in self._alive else torch.arange(len(self._axes[key].ids))

    def width(self, part: Part) -> int:
        """Positions that are left on the part's axis."""
        return len(self._alive[part.owner, part.role])

    def axis_width(self, owner: str, role: Role) -> int | None:
        """Positions that are left on an axis of a layer; None where it has no such axis."""
        key = (owner, role)
        return len(self._alive[key]) if key in self._alive else len(self._axes[key].ids) if key in self._axes else None

    def has_weights(self, part: Part) -> bool:
        """Whether a tensor has the part's axis."""
        return bool(self._axes[part.owner, part.role].tensors)

    def _check(self, site: Site, drop: Sequence[int]) -> list[int]:
        drop = sorted({int(c) for c in drop})
        if drop and not (drop[0] >= 0 and drop[-1] < site.channels):
            wrong = drop[0] if drop[0] < 0 else drop[-1]
            raise UnprunableError(f"site {site.name!r} has channels 0..{site.channels - 1}; asked to remove {wrong}")
        if len(drop) == site.channels and site.keeps_one:
            raise UnprunableError(f"removing all {site.channels} channels of {site.name!r} leaves nothing; keep one")
        return drop

    @contextmanager
    def mask(self, drop: Mapping[str, Sequence[int]]) -> Iterator[None]:
        """Inside, every consumer sees zeros in place of these channels."""
        with ExitStack() as undo:
            for name, channels in drop.items():
                site = self[name]
                gone = torch.tensor(self._check(site, channels), dtype=torch.long)
                if isinstance(site, Branch) and len(gone):
                    undo.callback(multiply_output(self._modules[site.output], 0.0))
                for part in site.parts:
                    if part.role == "in":
                        multiplier = torch.ones(self.width(part))
                        multiplier[self.places(site, part)[gone].flatten()] = 0
                        undo.callback(multiply_input(self.model, self._modules, part.owner, multiplier))
            yield

    def scale(self, site: Site, factors: Tensor) -> None:
        """Multiply what every consumer reads of each channel by a factor, in its weights; or a branch, in its last."""
        if isinstance(site, Branch):
            fold_into_output(self.model, site, factors)
        for part in site.parts:
            axis = self._axes[part.owner, part.role]
            if part.role in ("in", "columns"):
                for name, dim in axis.tensors:
                    places = self.places(site, part).to(factors.device)
                    scale = torch.ones(self.width(part), device=factors.device, dtype=factors.dtype)
                    scale[places] = factors.detach().unsqueeze(1).expand_as(places)
                    multiply(self.model, name, dim, scale)

    def remove(self, drop: Mapping[str, Sequence[int]], *, optimizer: torch.optim.Optimizer | None = None) -> Plan:
        """Remove channels, or whole branches, physically and in place; the optimizer's state follows. Returns the plan
        so far."""
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ModelError("LBFGS holds parameters where a cut cannot follow; make a new one after it")
        checked = {name: self._check(self[name], channels) for name, channels in drop.items()}
        whole = [name for name, gone in checked.items() if gone and name in self.branches]
        if whole:
            remove_branches(self, whole, optimizer)
        checked = {name: gone for name, gone in checked.items() if name in self and name not in self.branches}
        stays: dict[tuple[str, Role], Tensor] = {}
        for name, gone in checked.items():
            site = self[name]
            for part in site.parts:
                key = (part.owner, part.role)
                stay = stays.setdefault(key, torch.ones(len(self._alive[key]), dtype=torch.bool))
                stay[self.places(site, part)[gone].flatten()] = False
        self._check_widths(stays)
        names = (name for key in stays for name, _ in self._axes[key].tensors)
        places = {owner: [self._applied[layer]] for owner, _ in stays if (layer := layer_at(owner)) in self._applied}
        self._shapes = tensor_shapes(self.model, names) | places | self._shapes
        stays = {key: stay for key, stay in stays.items() if not bool(stay.all())}
        cuts = [(name, dim, stay) for key, stay in stays.items() for name, dim in self._axes[key].tensors]
        for name, dim, stay in sorted(cuts, key=lambda cut: cut[1]):  # rows first: they are cheap to cut
            keep_positions(self.model, name, dim, stay.nonzero().flatten(), optimizer)
        for (owner, role), stay in stays.items():
            if owner in self._modules:
                set_width(self._modules[owner], role, int(stay.sum()))
            if counted := self._axes[owner, role].counted:
                set_size(self._modules[counted.module], counted.key, int(stay.sum()))
            self._alive[owner, role] = self._alive[owner, role][stay]
        refresh_counts(self._modules.values())
        for name, gone in checked.items():
            left = torch.ones(self[name].channels, dtype=torch.bool)
            left[gone] = False
            self[name].alive = self[name].alive[left]
        note_cuts(self.model, self.history())
        return self.plan()

    def remove_blocks(self, names: Iterable[str], *, optimizer: torch.optim.Optimizer | None = None) -> Plan:
        """Remove the branches of residual blocks: what is left of each sum is its shortcut. Returns the plan so far."""
        return self.remove({find_branch(self, name).name: (0,) for name in names}, optimizer=optimizer)

    def check_branches(self) -> None:
        """Prove, on a copy, that every branch can go exactly; those that cannot are frozen, with what was found."""
        check_branches(self)

    def freeze_branch(self, name: str, reason: Reason) -> None:
        """A branch stays."""
        self.frozen_branches[name] = reason
        del self.branches[name], self._by_name[name]

    def forget(self, blocks: Mapping[str, RemovedBlock]) -> None:
        """Branches have been removed: drop all that lay inside of them."""
        gone = {path: steps for block in blocks.values() for path, steps in block.modules.items()}
        self.removed_blocks |= blocks
        within = [site for site in self.sites if all(is_replaced(name, gone) for name in site.producers)]
        self.gone_sites |= {site.name: site.original for site in within}
        self.sites = [site for site in self.sites if site.name not in self.gone_sites]
        for site in self.sites:
            site.parts = [part for part in site.parts if not is_replaced(part.owner, gone)]
        self.branches = {n: b for n, b in self.branches.items() if n not in blocks and not is_replaced(b.output, gone)}
        self._by_name = {**self.branches, **{site.name: site for site in self.sites}}
        self._modules = dict(self.model.named_modules(remove_duplicate=False))
        self._applied = {name: n for name, n in self._applied.items() if not is_replaced(name, gone)}
        self._fixed = [layer for layer in self._fixed if not is_replaced(layer.name, gone)]
        self._alive = {key: alive for key, alive in self._alive.items() if not is_replaced(key[0], gone)}
        for reasons in (self.frozen, self.frozen_branches):
            for name in [name for name in reasons if is_replaced(name.partition("#")[0], gone)]:
                del reasons[name]

    def _check_widths(self, axes: Iterable[tuple[str, Role]]) -> None:
        """Refuse to cut a model that was changed behind the graph's back."""
        for key in axes:
            for name, dim in self._axes[key].tensors:
                check_width(self.model, name, dim, len(self._alive[key]))

    def plan(self) -> Plan:
        """All that has been removed since the trace."""
        tensors: dict[str, dict[str, list[int]]] = {}
        widths: dict[str, dict[str, int]] = {}
        for (owner, role), alive in self._alive.items():
            axis = self._axes[owner, role]
            if len(alive) < len(axis.ids):
                for name, dim in axis.tensors:
                    if find_tensor(self.model, name)[2] is not None:
                        tensors.setdefault(name, {})[str(dim)] = alive.tolist()
                if owner in self._modules:
                    widths.setdefault(owner, {})[role] = len(alive)
                if axis.counted:
                    widths.setdefault(axis.counted.module, {})[axis.counted.key] = len(alive)
        sites = {s.name: {"channels": s.original, "kept": s.alive.tolist()} for s in self.sites}
        return Plan(tensors, widths, sites, dict(self.removed_blocks))

    def history(self) -> CutHistory:
        """How the network came about from the one that was built: cuts before the trace, as far as known, and since."""
        return CutHistory(self.plan(), self._shapes).after(self.earlier, self.model)

    def layers(self) -> list[LayerCost]:
        """What each convolution and linear layer costs now, and a recurrent one for its input, front to back; weights
        made in the forward, and those that recurrent layers use for themselves, come last."""
        found = []
        for owner, positions in self._applied.items():
            key: tuple[str, Role] = (places_of(owner), "along")
            if key in self._alive:  # it is applied to each of these channels
                positions = positions * len(self._alive[key]) // len(self._axes[key].ids)
            weights = weights_of(self.model, self._modules, owner)
            kind, size = "conv" if weights[0].dim() > 2 else "linear", sum(weight.numel() for weight in weights)
            found.append(LayerCost(owner, kind, positions * size, size))
        return found + self._fixed

    def macs(self) -> int:
        """Multiply-accumulates of convolutions and linear layers for one example."""
        return MACS.total(self)

    def params(self) -> int:
        """Weights of convolutions and linear layers (no biases, no normalisation), as in the paper's tables."""
        return PARAMS.total(self)

    def macs_without(self, counts: Mapping[str, int]) -> float:
        """MACs that would be left without so many channels of each site, whichever they are."""
        return MACS.without(self, counts)

    def macs_per_channel(self, site: Site) -> float:
        """MACs that disappear from the network as it is now with one channel: its filters and its columns."""
        return MACS.per_channel(self, site)

    def remaining_shares(self, counts: Mapping[str, int], *, of: layer_shares.Share = "weights") -> dict[str, float]:
        """For each layer that would lose something without so many channels of each site, the share that it keeps."""
        return layer_shares.remaining_shares(self, counts, of)

    def channel_shares(self, site: Site, *, of: layer_shares.Share = "weights") -> Iterator[tuple[str, float]]:
        """Layers that lose something with the site's channels, each with the share of it that one channel has."""
        return layer_shares.channel_shares(self, site, of)
