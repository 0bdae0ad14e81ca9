"""What a run says of each cost of its network, as the terminal and the pages show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rbprune.graph.cost import COSTS, LATENCY
from rbprune.utils.numbers import as_number, count, decimal, quotient

FEW = 100
"""Below this, a number that is not whole is shown with its decimals."""


@dataclass(frozen=True)
class CostTotal:
    """One cost of the whole network, in the dense and in the pruned one, and how many times smaller it became."""

    label: str
    before: float | None
    after: float | None
    ratio: float | None

    @property
    def heading(self) -> str:
        """The label with a capital, for a column or a figure.

        >>> CostTotal("parameters", None, None, None).heading
        'Parameters'
        """
        return self.label[:1].upper() + self.label[1:]

    @property
    def is_known(self) -> bool:
        """Whether the run says anything of this cost."""
        return any(value is not None for value in (self.before, self.after, self.ratio))


def cost_totals(
    summary: Mapping[str, Any], start: Mapping[str, Any] | None = None, stages: Sequence[Mapping[str, Any]] = ()
) -> dict[str, CostTotal]:
    """Every cost of ``COSTS`` that the run knows, by name; where it knows none, those that are counted, unknown.

    The summary counts first. Until there is one, the dense network is that of the event ``start`` and the pruned
    network that of the last of ``stages``. A run that was made before a cost existed says nothing of it.

    >>> cost_totals({"macs_before": 100, "macs_after": 40})
    {'macs': CostTotal(label='MACs', before=100.0, after=40.0, ratio=2.5)}
    """
    last = stages[-1] if stages else {}
    totals = {}
    for name, cost in COSTS.items():
        before = _first(summary.get(f"{name}_before"), (start or {}).get(name))
        after = _first(summary.get(f"{name}_after"), last.get(name))
        reached = _first(summary.get(f"{name}_ratio"), quotient(before, after), last.get(f"{name}_ratio"))
        totals[name] = CostTotal(cost.label, before, after, reached)
    counted = {name: total for name, total in totals.items() if COSTS[name] is not LATENCY}
    return {name: total for name, total in totals.items() if total.is_known} or counted


def quantity(value: Any) -> str:
    """An amount of some cost: counted things as a count, a small measured value with three digits.

    >>> quantity(125485706), quantity(853), quantity(3.2149)
    ('125.5 M', '853', '3.21')
    """
    number = as_number(value)
    measured = number is not None and abs(number) < FEW and not number.is_integer()
    return decimal(number) if measured else count(number)


def _first(*values: Any) -> float | None:
    return next((found for found in map(as_number, values) if found is not None), None)
