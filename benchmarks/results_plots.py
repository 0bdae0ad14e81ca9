"""The two pictures of docs/results.md, from the summaries in docs/results.

python benchmarks/results_plots.py docs/results
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

OURS, RIVAL, PEER, GREY = "#1f6fb2", "#c4511d", "#3c8d40", "#8a8a8a"
COLOURS = {"rrbp": OURS, "rbp": OURS, "ibp": OURS, "uniform": RIVAL, "l1": RIVAL, "tp": PEER}
ONE_BUDGET = "resnet20-cifar10, budget 2, --match, seeds 0 to 2"
BY_COST = {
    2: (ONE_BUDGET, " seed "),
    4: ("resnet20-cifar10, budget 4, 2.25x", " seed "),
    10: ("resnet20-cifar10, budget 10, seed 0", ""),
    30: ("resnet20-cifar10, budget 30, seed 0", ""),
}
"""Runs of ResNet-20 at 2.2x to 2.4x fewer MACs by what they cost in dense epochs."""


def colour(method: str) -> str:
    """Ours, uniform L1, torch-pruning's, or another."""
    return next((found for start, found in COLOURS.items() if method.split("-")[0] == start), GREY)


def by_method(runs: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The runs of each method, whatever their seeds."""
    found = defaultdict(list)
    for name, run in runs.items():
        if "," not in name:
            found[name.split(" seed ")[0]].append(run)
    return found


def against_macs(runs: dict[str, Any], out: Path) -> None:
    """Mean test error against MACs of all methods under one budget."""
    figure, axes = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    placed: list[tuple[float, float]] = []
    for method, rows in sorted(by_method(runs).items(), key=lambda item: mean(r["error_after"] for r in item[1])):
        x, y = mean(row["macs_ratio"] for row in rows), mean(row["error_after"] for row in rows)
        if y > 17.5:
            continue
        axes.plot(x, y, "o", color=colour(method), markersize=7 if colour(method) == OURS else 5)
        shift = 0.0
        while any(abs(x - px) < 0.12 and abs(y + shift - py) < 0.24 for px, py in placed):
            shift += 0.06
        placed.append((x, y + shift))
        axes.annotate(method, (x, y), (x + 0.02, y + shift), fontsize=8, va="center", color=colour(method))
    axes.set(xlabel="times fewer MACs", ylabel="test error, %", xlim=(0.95, 2.75))
    axes.set_title("ResNet-20, CIFAR10: 2 dense epochs for pruning and recovery, mean of three seeds", fontsize=9)
    axes.grid(alpha=0.3)
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)


def against_cost(everything: dict[str, Any], out: Path) -> None:
    """Test error of rrbp and of uniform L1 against what they cost."""
    figure, axes = plt.subplots(figsize=(7.2, 4.0), layout="constrained")
    for method, label in (("rrbp", "rrbp"), ("uniform", "uniform L1")):
        costs, errors = [], []
        for cost, (name, _) in BY_COST.items():
            rows = by_method(everything[name])[method]
            costs.append(cost)
            errors.append(mean(row["error_after"] for row in rows))
            axes.plot([cost] * len(rows), [row["error_after"] for row in rows], ".", color=colour(method), alpha=0.5)
        axes.plot(costs, errors, "o-", color=colour(method), label=label)
    dense = everything[ONE_BUDGET]["uniform seed 0"]["error_before"]
    axes.axhline(dense, color=GREY, linestyle=":", label="dense network")
    axes.set(xscale="log", xlabel="cost of pruning and recovery, dense epochs", ylabel="test error, %")
    axes.set_xticks(list(BY_COST), [str(cost) for cost in BY_COST])
    axes.minorticks_off()
    axes.set_title("ResNet-20, CIFAR10, 2.2x to 2.4x fewer MACs; small dots: single seeds", fontsize=9)
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    everything = json.loads((folder / "methods-one-budget.json").read_text())
    plt.rcParams["svg.hashsalt"] = "rbprune"
    against_macs(everything[ONE_BUDGET], folder / "error-macs.svg")
    against_cost(everything, folder / "error-cost.svg")


if __name__ == "__main__":
    main()
