"""``rbprune evaluate``."""

from __future__ import annotations

import sys
from json import dumps
from pathlib import Path

from rich.console import Console

from rbprune.cli.options import FAILED, Json, Set, Trust
from rbprune.export.claims import Evaluation, evaluate_network
from rbprune.export.network import open_network


def evaluate(
    folder: Path,
    model: str | None = None,
    *,
    set: Set = [],  # noqa: B006
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Count the error, MACs and parameters of a pruned network, and compare them with what its folder says.

    The error is that on the test data. The exit code is 3 where the folder says something else.

    Parameters
    ----------
    folder
        A finished run, a folder that 'rbprune export' wrote, or one of zoo/.
    model
        The model, if the folder names none that can be built: package.module:factory or path/file.py:factory.
    """
    found = evaluate_network(open_network(folder, model, set, trust=trust))
    if json:
        print(dumps(found.as_dict(), indent=2))
    else:
        for line in _lines(found):
            Console().print(line, markup=False, highlight=False, soft_wrap=True)
    if found.differences:
        sys.exit(FAILED)


def _lines(found: Evaluation) -> list[str]:
    lines = [
        f"error {found.error:.2f} % on {found.examples:,} test images",
        f"MACs {found.macs:,}, {found.macs_ratio:.2f}x fewer than the dense network",
        f"parameters {found.params:,}, {found.params_ratio:.2f}x fewer",
    ]
    if found.differences:
        return lines + found.differences
    claims = ", ".join(found.claimed)
    return [*lines, f"as the folder says ({claims})" if claims else "the folder claims nothing to compare with"]
