"""Where pruning is hard: many methods from one dense network, at equal MACs and equal cost, over several seeds.

    python benchmarks/contest.py run OUT --data DIR --weights FILE --ratios 4,8 --budget 1 --seeds 3,4,5
    python benchmarks/contest.py collect OUT >> docs/results/contest.jsonl
    python benchmarks/contest.py table docs/results/contest.jsonl

At equal latency instead (in a folder of its own), with widths rounded the same way for every method:

    rbprune calibrate resnet20b-cifar --out device.json
    python benchmarks/contest.py run OUT ... --target latency_ratio --set prune.latency=device.json \
        --set prune.round_to=device

A run that is complete is not made again. ``--rows`` names some of ROWS. Validation images are held out of everything;
give weights that were trained with the same ``data.val``, or they have seen them.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

SUMS, INSIDES, COMPENSATED = {"prune.sums": "true"}, {"prune.sums": "false"}, {"prune.compensate": "weights"}
ROWS: dict[str, dict[str, str]] = {
    "rrbp, insides": {"prune.method": "rrbp", **INSIDES},
    "rrbp, insides, compensated": {"prune.method": "rrbp", **COMPENSATED, **INSIDES},
    "rrbp": {"prune.method": "rrbp", **SUMS},
    "rrbp, compensated": {"prune.method": "rrbp", **COMPENSATED, **SUMS},
    "rrbp, blocks": {"prune.method": "rrbp", "prune.blocks": "true", **SUMS},
    "rrbp, blocks, compensated": {"prune.method": "rrbp", "prune.blocks": "true", **COMPENSATED, **SUMS},
    "rrbp widths, from scratch": {"prune.method": "rrbp", "finetune.reinitialise": "true", **SUMS},
    "uniform, insides": {"prune.method": "uniform", **INSIDES},
    "uniform": {"prune.method": "uniform", **SUMS},
    "uniform widths, from scratch": {"prune.method": "uniform", "finetune.reinitialise": "true", **SUMS},
    "l1": {"prune.method": "l1", **SUMS},
    "taylor": {"prune.method": "taylor", **SUMS},
    "thinet, insides": {"prune.method": "thinet", **INSIDES},
    "cp, insides": {"prune.method": "cp", **INSIDES},
    "tp-group": {"prune.method": "tp-group", **SUMS},
    "tp-taylor": {"prune.method": "tp-taylor", **SUMS},
}
"""What a row of the table sets; but for those called insides every method may cut residual sums."""
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45}
"""Student's t for a two-sided interval of 95 %, by degrees of freedom."""


def run(options: argparse.Namespace) -> None:
    """Make the runs that are missing, one after the other."""
    chosen = options.rows.split(";") if options.rows else list(ROWS)
    for seed in options.seeds.split(","):
        for ratio in options.ratios.split(","):
            for row in chosen:
                folder = options.out / f"{row.replace(', ', '-').replace(' ', '-')}_{ratio}x_{options.budget}_{seed}"
                if (folder / "summary.json").is_file():
                    continue
                if folder.exists():
                    command = ["resume", str(folder)]
                else:
                    fixed = {"model.name": options.network, "model.weights": options.weights, "seed": seed}
                    fixed |= {"data.path": options.data, "data.val": "5000", "budget": options.budget}
                    fixed |= {"runtime.threads": "1", f"prune.{options.target}": ratio, **ROWS[row]}
                    fixed |= dict(change.split("=", 1) for change in options.set)
                    words = [word for key, value in fixed.items() for word in ("--set", f"{key}={value}")]
                    command = ["prune", options.recipe, *words, "--out", str(folder)]
                done = subprocess.run([sys.executable, "-m", "rbprune", *command], capture_output=True, text=True)
                last = (done.stderr if done.returncode else done.stdout).strip().splitlines()
                print(folder.name, done.returncode, last[-1] if last else "", flush=True)


def collect(options: argparse.Namespace) -> None:
    """Print a line of JSON for every run that is complete."""
    rows = {name.replace(", ", "-").replace(" ", "-"): name for name in ROWS}
    for file in sorted(options.out.glob("*/summary.json")):
        name, ratio, budget, seed = file.parent.name.rsplit("_", 3)
        summary = json.loads(file.read_text())
        told = {"row": rows.get(name, name), "ratio": float(ratio[:-1]), "budget": float(budget), "seed": int(seed)}
        keys = (
            "model",
            "macs_ratio",
            "params_ratio",
            "latency_ratio",
            "error_before",
            "val_error_after",
            "error_after",
            "dense_epochs",
        )
        told |= {key: summary.get(key) for key in keys}
        told["channels"] = "-".join(str(left) for _, left in summary["channels"].values())
        print(json.dumps(told))


def interval(differences: list[float]) -> str:
    """The mean of paired differences with its 95 % interval."""
    if len(differences) < 2:
        return f"{differences[0]:+.2f}" if differences else ""
    half = T95[min(len(differences) - 1, max(T95))] * stdev(differences) / math.sqrt(len(differences))
    return f"{mean(differences):+.2f} +- {half:.2f}{' *' if abs(mean(differences)) > half else ''}"


def table(options: argparse.Namespace) -> None:
    """Print a table for every network, ratio and budget, sorted by validation error; * marks what is told apart."""
    groups: dict[tuple[str, float, float], dict[str, dict[int, dict[str, Any]]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for line in Path(options.file).read_text().splitlines():
        each = json.loads(line)
        groups[each["model"], each["ratio"], each["budget"]][each["row"]][each["seed"]] = each
    for (model, ratio, budget), rows in sorted(groups.items()):
        print(f"\n{model}, {ratio:g}x fewer MACs, {budget:g} dense epochs\n")
        print("| method | seeds | MACs x | validation error % | test error % | behind `rrbp` by (test, paired) |")
        print("|---|---|---|---|---|---|")
        ours = rows.get(options.against, {})
        for name, seeds in sorted(rows.items(), key=lambda item: mean(_values(item[1].values(), "val_error_after"))):
            apart = [each["error_after"] - ours[seed]["error_after"] for seed, each in seeds.items() if seed in ours]
            cells = [f"{mean(_values(seeds.values(), key)):.2f}" for key in ("macs_ratio", "val_error_after")]
            test = _values(seeds.values(), "error_after")
            spread = f" +- {stdev(test):.2f}" if len(test) > 1 else ""
            behind = "" if name == options.against else interval(apart)
            print(f"| {name} | {len(seeds)} | {' | '.join(cells)} | {mean(test):.2f}{spread} | {behind} |")


def _values(rows: Iterable[dict[str, Any]], key: str) -> list[float]:
    return [row[key] for row in rows]


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("run")
    verb.add_argument("out", type=Path)
    verb.add_argument("--recipe", default="resnet20-cifar10")
    verb.add_argument("--network", default="resnet20b-cifar")
    verb.add_argument("--weights", required=True)
    verb.add_argument("--data", required=True)
    verb.add_argument("--ratios", default="2,4,8")
    verb.add_argument("--budget", default="1")
    verb.add_argument("--target", choices=("macs_ratio", "params_ratio", "latency_ratio"), default="macs_ratio")
    verb.add_argument("--seeds", default="3,4,5,6,7")
    verb.add_argument("--rows", help="names of ROWS, separated by semicolons")
    verb.add_argument("--set", action="append", default=[], help="a setting for every run")
    verb.set_defaults(do=run)
    verb = verbs.add_parser("collect")
    verb.add_argument("out", type=Path)
    verb.set_defaults(do=collect)
    verb = verbs.add_parser("table")
    verb.add_argument("file")
    verb.add_argument("--against", default="rrbp")
    verb.set_defaults(do=table)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
