"""What a method says about channels, and what a finished stage did to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from rbprune.methods.cut import CutReport

if TYPE_CHECKING:
    from rbprune.methods.channel_record import JudgedSite


@dataclass(frozen=True)
class Verdict:
    """What a method says about the channels of one site.

    ``value`` is its diagnostic for each channel, higher for a more redundant one; ``redundant`` says which go;
    ``factor`` is multiplied into the consumers' weights before the cut; ``rank`` is what a cut down to a target follows
    instead of ``value``, where values of different sites cannot be compared; ``bound`` is the rank of a channel that is
    worth its price exactly, where a method knows it.
    """

    value: Tensor
    redundant: Tensor
    factor: Tensor | None = None
    rank: Tensor | None = None
    bound: float | None = field(default=None, kw_only=True)

    @property
    def ranking(self) -> Tensor:
        """The order in which channels go, highest first, where something else than ``redundant`` says how many."""
        return self.value if self.rank is None else self.rank


@dataclass(frozen=True)
class StageResult:
    """What a finished stage did.

    ``values`` are the method's diagnostic per channel, ``channels`` those before and after, ``guarded`` the sites where
    one channel was spared because all were redundant, ``notes`` one more number per site where a method has one
    (relative reconstruction error).
    """

    diagnostic: str
    values: dict[str, Tensor]
    channels: dict[str, tuple[int, int]]
    undecided: dict[str, float]
    price: dict[str, tuple[float, float]]
    guarded: list[str]
    notes: dict[str, float]
    cut: CutReport = field(default_factory=CutReport)
    """What the cut did to the loss."""
    records: dict[str, JudgedSite] = field(default_factory=dict)
    """For each site what was known of every channel, and what became of it."""


def spare_one(name: str, verdict: Verdict, gone: Tensor, remedy: str) -> str | None:
    """Keep the least redundant channel of a site, in place, where all were to go; returns what to tell the user."""
    if not bool(gone.all()):
        return None
    gone[verdict.value.argmin()] = False
    return (
        f"every channel of {name!r} was redundant; the least redundant one is kept. If the error suffers, {remedy} "
        "keeps more"
    )
