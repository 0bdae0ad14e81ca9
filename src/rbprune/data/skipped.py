"""Which corrupt examples were left out, so that a run can say so."""

from __future__ import annotations

from collections.abc import Iterable

SHOWN = 3


class Skipped:
    """Names of the examples left out since this was last told; the sources of one data set share it.

    >>> skipped = Skipped()
    >>> skipped.add(["b.jpg", "a.jpg"])
    >>> skipped.tell()
    '2 corrupt examples left out (data.corrupt = "skip"): a.jpg, b.jpg'
    >>> skipped.tell() is None
    True
    """

    def __init__(self) -> None:
        self.names: set[str] = set()

    def add(self, names: Iterable[str]) -> None:
        """These were left out of a batch."""
        self.names.update(names)

    def tell(self) -> str | None:
        """How many there were, and the first of them; afterwards there are none."""
        names = sorted(self.names)
        self.names = set()
        if not names:
            return None
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        plural = "s" if len(names) > 1 else ""
        return (
            f'{len(names)} corrupt example{plural} left out (data.corrupt = "skip"): {", ".join(names[:SHOWN])}{more}'
        )
