"""What was removed, as JSON: enough to make the same cut in a fresh instance of the same network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rbprune.errors import ModelError
from rbprune.graph.branch import is_replaced
from rbprune.graph.cost import LayerCost
from rbprune.graph.cutting.plan_fields import check_fields, checksum, unique_keys

VERSION = 2
"""The format that is written where blocks are removed; without any it is 1, which older versions read too."""


@dataclass(frozen=True)
class RemovedBlock:
    """A residual block whose branch is gone."""

    modules: dict[str, list[str]] = field(default_factory=dict)
    """What stands in place of modules (``branch.Replacements``)."""
    layers: list[LayerCost] = field(default_factory=list)
    """What its convolutions and linear layers cost in the original network."""

    @staticmethod
    def from_plain(raw: Mapping[str, Any]) -> RemovedBlock:
        """Read what ``dataclasses.asdict`` gave, once ``check_fields`` has seen it."""
        return RemovedBlock(dict(raw["modules"]), [LayerCost(**layer) for layer in raw["layers"]])


@dataclass(frozen=True)
class Plan:
    """Kept positions (of the original network) of each changed tensor, new widths of modules, kept channels of sites,
    blocks without their branch.

    The widths of a module go by the role of an axis (``out``) or, in a plan of several cuts, by attribute
    (``out_channels``).

    >>> plan = Plan({"conv1.weight": {"0": [0, 2]}}, {"conv1": {"out": 2}}, {"conv1": {"channels": 3, "kept": [0, 2]}})
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    tensors: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    widths: dict[str, dict[str, int]] = field(default_factory=dict)
    sites: dict[str, dict[str, Any]] = field(default_factory=dict)
    blocks: dict[str, RemovedBlock] = field(default_factory=dict)
    """In the order in which they were removed."""

    def to_json(self) -> str:
        """One object with the keys version, tensors, widths, sites, perhaps blocks, and sha256 of all the rest."""
        fields: dict[str, Any] = {"tensors": self.tensors, "widths": self.widths, "sites": self.sites}
        if self.blocks:
            fields["blocks"] = {name: asdict(block) for name, block in self.blocks.items()}
        return json.dumps({"version": VERSION if self.blocks else 1, "sha256": checksum(fields), **fields})

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read what ``to_json`` wrote; anything else is a ModelError, also a plan that was changed since.

        Plans of before there was a checksum are checked as far as they can be: types, ranges and order.
        """
        try:
            raw: Mapping[str, Any] = json.loads(text, object_pairs_hook=unique_keys)
            version, fields = raw["version"], {name: raw[name] for name in ("tensors", "widths", "sites")}
            fields |= {"blocks": raw["blocks"]} if "blocks" in raw else {}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelError(f"this is not a pruning plan ({error!r}); one is the plan.json of a run folder") from error
        if version not in (1, VERSION):
            raise ModelError(
                f"plan version {version!r} is unknown here (this rbprune reads 1 to {VERSION}); upgrade rbprune"
            )
        check_fields(fields)
        if "sha256" in raw and raw["sha256"] != checksum(fields):
            raise ModelError(
                "the plan is damaged: its fields are not those that its sha256 was taken of; copy plan.json anew, or, "
                "if you changed it on purpose, take its sha256 out"
            )
        blocks = {name: RemovedBlock.from_plain(block) for name, block in fields.pop("blocks", {}).items()}
        return Plan(**fields, blocks=blocks)

    def replacements(self) -> dict[str, list[str]]:
        """What stands in place of the modules of all removed branches, by name of the module."""
        return {path: steps for block in self.blocks.values() for path, steps in block.modules.items()}

    def then(self, later: Plan, counts: Mapping[str, dict[str, int]]) -> Plan:
        """Both cuts as one, of the network that this plan is for; ``later`` is for the network that this one leaves.

        ``counts`` are what the modules that they change count in the end, by attribute: a grouped layer may have become
        a depthwise one in between, so that the axes of one plan mean nothing to the other.

        >>> first, second = Plan({"a.weight": {"0": [1, 2, 5]}}), Plan({"a.weight": {"0": [0, 2], "1": [3]}})
        >>> first.then(second, {}).tensors
        {'a.weight': {'0': [1, 5], '1': [3]}}
        """
        gone = later.replacements()
        tensors = {name: dict(dims) for name, dims in self.tensors.items() if not is_replaced(name, gone)}
        for name, dims in later.tensors.items():
            own = tensors.setdefault(name, {})
            for dim, kept in dims.items():
                own[dim] = [own[dim][position] for position in kept] if dim in own else kept
        sites = {name: s for name, s in self.sites.items() if not is_replaced(name.partition("#")[0], gone)}
        for name, site in later.sites.items():
            before = sites.get(name)
            if before is not None and len(before["kept"]) == site["channels"]:
                site = {"channels": before["channels"], "kept": [before["kept"][channel] for channel in site["kept"]]}
            sites[name] = site
        return Plan(tensors, dict(counts), sites, {**self.blocks, **later.blocks})
