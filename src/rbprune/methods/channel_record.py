"""What a stage knew of every channel when it judged, and what became of it: enough to ask afterwards why it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from rbprune.graph import ChannelGraph
from rbprune.graph.cost import known_costs
from rbprune.methods.verdict import Verdict

DIGITS = 6
"""Significant digits of the numbers of a record, in the log of a run."""


@dataclass(frozen=True)
class ChannelEvidence:
    """What the data says for each channel of one site, and what the channel costs, in nats over the training set."""

    nats: Tensor
    """What removing the channel alone would cost."""
    price: Tensor
    """What it must bring to stay."""
    undecided: Tensor
    """Whether the two cannot be told apart."""
    error: Tensor | None = None
    """The standard error of ``nats``, where it is known."""


@dataclass(frozen=True)
class JudgedSite:
    """The channels of one site in one stage, in the order in which the stage counted them."""

    channels: tuple[int, ...]
    """The number of each channel in the network as it was traced."""
    value: Tensor
    """The method's own diagnostic, higher for a more redundant channel."""
    asked: Tensor
    """Which channels were to go."""
    saving: dict[str, float]
    """What goes with any one of them from the network before the cut, by name of the cost."""
    evidence: ChannelEvidence | None = None
    """None for a method that does not weigh evidence."""
    gone: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.bool))
    """Which channels went."""

    def verdicts(self) -> list[str]:
        """A word for each channel: it ``goes``, ``stays``, stays because the method was ``undecided``, or was to go and
        was ``taken back`` because the cut would have cost too much.

        >>> left = torch.tensor([True, False, False])
        >>> JudgedSite((0, 1, 2), torch.zeros(3), left, {}, gone=left).verdicts()
        ['goes', 'stays', 'stays']
        """
        doubt = torch.zeros_like(self.asked) if self.evidence is None else self.evidence.undecided
        rows = zip(self.gone.tolist(), self.asked.tolist(), doubt.tolist(), strict=True)
        return [_word(gone, asked=asked, undecided=undecided) for gone, asked, undecided in rows]

    def to_dict(self) -> dict[str, Any]:
        """The fields of the event of a stage; numbers are rounded to ``DIGITS`` significant digits."""
        found: dict[str, Any] = {
            "channels": list(self.channels),
            "value": _rounded(self.value),
            "saving": self.saving,
            "verdict": self.verdicts(),
        }
        if self.evidence is not None:
            found |= {"evidence": _rounded(self.evidence.nats), "price": _rounded(self.evidence.price)}
            found["error"] = None if self.evidence.error is None else _rounded(self.evidence.error)
        return found


def _word(gone: bool, *, asked: bool, undecided: bool) -> str:
    if gone:
        return "goes"
    if asked:
        return "taken back"
    return "undecided" if undecided else "stays"


def _rounded(values: Tensor) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values.detach().cpu().double().tolist()]


def record_sites(
    graph: ChannelGraph,
    verdicts: Mapping[str, Verdict],
    asked: Mapping[str, Tensor],
    evidence: Mapping[str, ChannelEvidence],
) -> dict[str, JudgedSite]:
    """What is known of every channel of some sites before they are cut."""
    found = {}
    for name, verdict in verdicts.items():
        site = graph[name]
        saving = {kind: cost.per_channel(graph, site) for kind, cost in known_costs(graph).items()}
        found[name] = JudgedSite(
            tuple(site.alive.tolist()), verdict.value.detach().clone(), asked[name].cpu(), saving, evidence.get(name)
        )
    return found


def after_cut(records: Mapping[str, JudgedSite], graph: ChannelGraph) -> dict[str, JudgedSite]:
    """The same records with what went, seen from the network after the cut."""
    found = {}
    for name, record in records.items():
        alive = set(graph[name].alive.tolist()) if name in graph else set()  # a branch may be gone
        gone = torch.tensor([channel not in alive for channel in record.channels], dtype=torch.bool)
        found[name] = replace(record, gone=gone)
    return found
