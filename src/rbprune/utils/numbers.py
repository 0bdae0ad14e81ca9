"""Numbers as people read them; a value that is missing or no finite number becomes a dash."""

from __future__ import annotations

import math
from typing import Any

DASH = "-"


def as_number(value: Any) -> float | None:
    """The finite number in ``value``, or None for everything else (null, text, NaN, booleans)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def quotient(before: Any, after: Any) -> float | None:
    """``before`` / ``after`` where both are numbers and ``after`` is positive, else None."""
    top, bottom = as_number(before), as_number(after)
    return top / bottom if top is not None and bottom is not None and bottom > 0 else None


def count(value: Any) -> str:
    """A count of things, from a thousand on with one decimal and its unit.

    >>> count(125485706), count(853), count(999_960)
    ('125.5 M', '853', '1.0 M')
    """
    amount = as_number(value)
    if amount is None:
        return DASH
    if abs(amount) < 1000:
        return f"{amount:.0f}"
    power = 1
    while abs(amount) >= 999.95 * 1000**power and power < 4:
        power += 1
    return f"{amount / 1000**power:.1f} {' kMGT'[power]}"


def ratio(value: Any) -> str:
    """How many times smaller something became.

    >>> ratio(2.1)
    '2.10x'
    """
    amount = as_number(value)
    return DASH if amount is None else f"{amount:.2f}x"


def percent(value: Any) -> str:
    """A value that already is in per cent, with two decimals.

    >>> percent(6.61)
    '6.61 %'
    """
    amount = as_number(value)
    return DASH if amount is None else f"{amount:.2f} %"


def score(value: Any, metric: str = "error") -> str:
    """The value of a metric: an error, which is in per cent, or a loss.

    >>> score(6.61), score(0.25, "loss"), score(0.0000123, "loss")
    ('6.61 %', '0.2500', '1.2e-05')
    """
    amount = as_number(value)
    if metric == "error" or amount is None:
        return percent(value)
    return f"{amount:.2g}" if 0 < abs(amount) < 0.001 else f"{amount:.4f}"


def change(value: Any) -> str:
    """A change with its sign, to two digits.

    >>> change(0.02134), change(-3e-5), change(None)
    ('+0.021', '-3e-05', '-')
    """
    amount = as_number(value)
    return DASH if amount is None else f"{amount:+.2g}"


def share(value: Any) -> str:
    """A fraction between 0 and 1 in whole per cent.

    >>> share(0.4)
    '40 %'
    """
    amount = as_number(value)
    return DASH if amount is None else f"{100 * amount:.0f} %"


def decimal(value: Any, digits: int = 3) -> str:
    """A number with so many significant digits and all of those before the point, without trailing zeros.

    >>> decimal(0.05), decimal(12.345), decimal(1234.5), decimal(0), decimal(99.9, digits=2)
    ('0.05', '12.3', '1234', '0', '100')
    """
    amount = as_number(value)
    if amount is None:
        return DASH
    return f"{amount:.0f}" if abs(amount) >= 10**digits - 0.5 else f"{amount:.{digits}g}"


def duration(value: Any) -> str:
    """A time in seconds, in its two largest units.

    >>> duration(3.21), duration(33.1), duration(725), duration(4980), duration(187200)
    ('3.2 s', '33 s', '12 min 05 s', '1 h 23 min', '2 d 4 h')
    """
    seconds = as_number(value)
    if seconds is None or seconds < 0:
        return DASH
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
