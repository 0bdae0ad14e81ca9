"""How far a difference between the errors of two classifiers can be trusted, from the examples that they get wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rbprune.train.evaluate import Mistakes


@dataclass(frozen=True)
class ErrorDifference:
    """By how many points the error of one network is above that of another, and the standard error of that."""

    points: float
    standard_error: float
    paired: bool
    """Whether the same examples were compared one by one, which leaves far less doubt."""

    def __str__(self) -> str:
        """In words, such as ``+0.40 points (standard error 0.22, paired)``."""
        how = "paired" if self.paired else "binomial"
        return f"{self.points:+.2f} points (standard error {self.standard_error:.2f}, {how})"


def error_difference(before: Mistakes, after: Mistakes) -> ErrorDifference:
    """How much worse ``after`` is than ``before``.

    Of the same n examples, of which b are wrong only after and c only before, the difference d = (b - c) / n is the
    mean of n independent terms of -1, 0 and 1, so its variance is ((b + c) / n - d^2) / n. Of other examples, or of the
    same in another order, the two errors are taken as independent: p (1 - p) / n each.

    >>> print(error_difference(Mistakes(100, (1, 2), 7), Mistakes(100, (2, 3, 4), 7)))
    +1.00 points (standard error 1.73, paired)
    >>> print(error_difference(Mistakes(100, (1, 2), 7), Mistakes(100, (2, 3, 4), 8)))
    +1.00 points (standard error 2.21, binomial)
    """
    shares = [len(each.wrong) / each.examples for each in (before, after)]
    difference = shares[1] - shares[0]
    paired = (before.examples, before.order) == (after.examples, after.order)
    if paired:
        changed = len(set(before.wrong) ^ set(after.wrong)) / after.examples
        variance = (changed - difference**2) / after.examples
    else:
        variance = sum(p * (1 - p) / each.examples for p, each in zip(shares, (before, after), strict=True))
    return ErrorDifference(100 * difference, 100 * math.sqrt(max(0.0, variance)), paired)
