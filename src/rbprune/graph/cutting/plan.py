"""What was removed, as JSON: enough to make the same cut in a fresh instance of the same network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rbprune.errors import ModelError
from rbprune.graph.cutting.plan_fields import check_fields, checksum, unique_keys

VERSION = 1


@dataclass(frozen=True)
class Plan:
    """Kept positions (of the original network) of each changed tensor, new widths of modules, kept channels of sites.

    The widths of a module go by the role of an axis (``out``) or, in a plan of several cuts, by attribute
    (``out_channels``).

    >>> plan = Plan({"conv1.weight": {"0": [0, 2]}}, {"conv1": {"out": 2}}, {"conv1": {"channels": 3, "kept": [0, 2]}})
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    tensors: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    widths: dict[str, dict[str, int]] = field(default_factory=dict)
    sites: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_json(self) -> str:
        """One object with the keys version, tensors, widths and sites, and sha256 of all but the version."""
        return json.dumps({"version": VERSION, "sha256": checksum(vars(self)), **vars(self)})

    @staticmethod
    def from_json(text: str) -> Plan:
        """Read what ``to_json`` wrote; anything else is a ModelError, also a plan that was changed since.

        Plans of before there was a checksum are checked as far as they can be: types, ranges and order.
        """
        try:
            raw: Mapping[str, Any] = json.loads(text, object_pairs_hook=unique_keys)
            version, parts = raw["version"], {name: raw[name] for name in ("tensors", "widths", "sites")}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelError(f"this is not a pruning plan ({error!r}); one is the plan.json of a run folder") from error
        if version != VERSION:
            raise ModelError(
                f"plan version {version!r} is unknown here (this rbprune reads {VERSION}); upgrade rbprune"
            )
        check_fields(parts)
        if "sha256" in raw and raw["sha256"] != checksum(parts):
            raise ModelError(
                "the plan is damaged: its fields are not those that its sha256 was taken of; copy plan.json anew, or, "
                "if you changed it on purpose, take its sha256 out"
            )
        return Plan(**parts)

    def then(self, later: Plan, counts: Mapping[str, dict[str, int]]) -> Plan:
        """Both cuts as one, of the network that this plan is for; ``later`` is for the network that this one leaves.

        ``counts`` are what the modules that they change count in the end, by attribute: a grouped layer may have become
        a depthwise one in between, so that the axes of one plan mean nothing to the other.

        >>> first, second = Plan({"a.weight": {"0": [1, 2, 5]}}), Plan({"a.weight": {"0": [0, 2], "1": [3]}})
        >>> first.then(second, {}).tensors
        {'a.weight': {'0': [1, 5], '1': [3]}}
        """
        tensors = {name: dict(dims) for name, dims in self.tensors.items()}
        for name, dims in later.tensors.items():
            own = tensors.setdefault(name, {})
            for dim, kept in dims.items():
                own[dim] = [own[dim][position] for position in kept] if dim in own else kept
        sites = dict(self.sites)
        for name, site in later.sites.items():
            before = sites.get(name)
            if before is not None and len(before["kept"]) == site["channels"]:
                site = {"channels": before["channels"], "kept": [before["kept"][channel] for channel in site["kept"]]}
            sites[name] = site
        return Plan(tensors, dict(counts), sites)
