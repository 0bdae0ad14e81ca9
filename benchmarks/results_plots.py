"""The pictures of docs/results.md, from the summaries in docs/results.

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
from matplotlib.axes import Axes

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

PAPER_VGG16 = {"SBP": (3.2, 9.0), "BC": (2.6, 9.0), "RBC": (3.1, 9.5), "IBP": (2.3, 8.3), "RBP": (3.5, 9.0)}
"""The rows of the paper's table: times fewer MACs, error in per cent."""
PAPER_DENSE = 8.4
OTHER_MACS = ("rbp", "rbc")
"""Methods that did not come to the MACs of the others in the comparison on ResNet-20."""
CONTEST = (
    ("rrbp", "o-", "rrbp"),
    ("uniform", "o-", "uniform L1"),
    ("tp-taylor", "s-", "Torch-Pruning, Taylor"),
    ("tp-group", "^--", "Torch-Pruning, group norm"),
)
"""Rows of the contest that are drawn, how, and their names."""
CONTESTS = {
    ("resnet20b-cifar", 0.5): "ResNet-20 with projections, CIFAR10, half a dense epoch",
    ("resnet56b-cifar", 0.25): "ResNet-56 with projections, CIFAR10, a quarter of a dense epoch",
}
"""The networks and budgets of the contest that are drawn, and their titles."""


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


def against_macs(runs: dict[str, Any], vgg16: dict[str, Any], out: Path) -> None:
    """Left: VGG16, the paper's rows and ours. Right: all methods on ResNet-20 at the same MACs, by their errors."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.6), layout="constrained")
    for name, (ratio, error) in PAPER_VGG16.items():
        left.plot(ratio, error, "s", color=GREY)
        left.annotate(name, (ratio, error), (0, 7), textcoords="offset points", ha="center", fontsize=8)
    left.plot(vgg16["macs_ratio"], vgg16["error_after"], "o", color=OURS, markersize=8)
    place = (vgg16["macs_ratio"], vgg16["error_after"])
    left.annotate("RBP, here", place, (0, 8), textcoords="offset points", ha="center", fontsize=9, color=OURS)
    left.plot(1, vgg16["error_before"], "o", color=OURS, fillstyle="none")
    left.plot(1, PAPER_DENSE, "s", color=GREY, fillstyle="none")
    left.set(xlabel="times fewer MACs", ylabel="test error, %", xlim=(0.6, 7.4), ylim=(7.9, 10))
    left.set_title("VGG16, CIFAR10: the paper (squares) and here (hollow: dense)", fontsize=9)
    left.grid(alpha=0.3)
    rows = [(m, [r["error_after"] for r in runs]) for m, runs in by_method(runs).items() if m not in OTHER_MACS]
    rows = sorted((row for row in rows if mean(row[1]) < 17), key=lambda row: -mean(row[1]))
    for place_, (method, errors) in enumerate(rows):
        right.plot(errors, [place_] * len(errors), ".", color=colour(method), alpha=0.5)
        right.plot(mean(errors), place_, "o", color=colour(method))
    right.set_yticks(range(len(rows)), [method for method, _ in rows], fontsize=8)
    right.set(xlabel="test error, %")
    right.set_title("ResNet-20, CIFAR10, 2.2x to 2.4x fewer MACs, 2 dense epochs", fontsize=9)
    right.grid(alpha=0.3)
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)


def label_errors(axes: Axes, ticks: dict[float, str]) -> None:
    """Test errors over a logarithmic axis with these ticks."""
    axes.set(xscale="log", ylabel="test error, %")
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)


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
    axes.set(xlabel="cost of pruning and recovery, dense epochs")
    axes.set_title("ResNet-20, CIFAR10, 2.2x to 2.4x fewer MACs; small dots: single seeds", fontsize=9)
    label_errors(axes, {cost: str(cost) for cost in BY_COST})
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)


def against_ratio(rows: list[dict[str, Any]], out: Path) -> None:
    """Test error of those that may cut sums, by how many times fewer MACs they were asked for, network by network."""
    figure, panels = plt.subplots(1, len(CONTESTS), figsize=(9.6, 4.0), layout="constrained")
    for axes, ((model, budget), title) in zip(panels, CONTESTS.items(), strict=True):
        draw_contest(axes, [row for row in rows if (row["model"], row["budget"]) == (model, budget)])
        axes.set_title(title, fontsize=9)
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)


def draw_contest(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """The rows of one network and budget; small dots are single seeds."""
    for name, style, label in CONTEST:
        errors: dict[float, list[float]] = defaultdict(list)
        for row in rows:
            if row["row"] == name:
                errors[row["ratio"]].append(row["error_after"])
        for ratio, found in errors.items():
            axes.plot([ratio] * len(found), found, ".", color=colour(name), alpha=0.5)
        if errors:
            axes.plot(sorted(errors), [mean(errors[r]) for r in sorted(errors)], style, color=colour(name), label=label)
    axes.axhline(rows[0]["error_before"], color=GREY, linestyle=":", label="dense network")
    axes.set(xlabel="times fewer MACs")
    label_errors(axes, {ratio: f"{ratio:g}x" for ratio in sorted({row["ratio"] for row in rows})})


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    everything = json.loads((folder / "methods-one-budget.json").read_text())
    plt.rcParams["svg.hashsalt"] = "rbprune"
    vgg16 = json.loads((folder / "vgg16-cifar10.json").read_text())
    against_macs(everything[ONE_BUDGET], vgg16, folder / "error-macs.svg")
    against_cost(everything, folder / "error-cost.svg")
    rows = [json.loads(line) for line in (folder / "contest.jsonl").read_text().splitlines()]
    against_ratio(rows, folder / "error-ratio.svg")


if __name__ == "__main__":
    main()
