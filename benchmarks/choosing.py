"""The pictures of docs/choosing.md and of the README: LeNet-5 on the data that comes with the package.

    python benchmarks/choosing.py run WORK         (about half an hour of one core; goes on where it was interrupted)
    python benchmarks/choosing.py draw [FOLDER]    (from docs/assets/choosing.json and docs/results/vgg16-cifar10.json)

``run`` prunes the network of the recipe ``demo`` at several prices and ratios, with several sizes of data and lengths
of stages, and writes what came out to docs/assets/choosing.json. ``draw`` makes the pictures of it, in docs/assets
unless another folder is named.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
RECORD = DOCS / "assets" / "choosing.json"
VGG16 = DOCS / "results" / "vgg16-cifar10.json"
SEEDS = (0,)
PRICES = (0.1, 0.3, 1.2, 5.0, 20.0)
RATIOS = (2, 4, 8, 16)
SIZES = (150, 900, 5400)
EPOCHS = (0.15, 0.5, 1.5, 6)
STEPS_PER_EPOCH = 5400 / 64
KEPT = ("error_before", "error_after", "val_error_before", "val_error_after", "macs_ratio", "params_ratio")
BLUE, ORANGE, GREY, LIGHT = "#2b6cb0", "#c05621", "#4a5568", "#cbd5e0"


def jobs() -> list[tuple[str, float, list[str]]]:
    """What is varied, at which value, with which settings."""
    found: list[tuple[str, float, list[str]]] = []
    found += [("price", price, [f"prune.price={{nats_per_example={price}}}"]) for price in PRICES]
    found += [("ratio", ratio, [f"prune.macs_ratio={ratio}", "budget=10"]) for ratio in RATIOS]
    found += [("stages", epochs * STEPS_PER_EPOCH, [f"prune.epochs={epochs}", "prune.price=none"]) for epochs in EPOCHS]
    for size in SIZES:  # as many steps of every phase, whatever the size
        times = max(SIZES) / size
        same = [f"pretrain.epochs={4 * times:g}", "prune.epochs=none", f"finetune.epochs={4 * times:g}"]
        found.append(("data", size, [f"data.limit={size}", "prune.price=none", *same]))
    return found


def summary_of(folder: Path, words: list[str], settings: list[str]) -> dict[str, Any]:
    """The summary of a run, which is made if it is not there."""
    from rbprune.cli import main

    if not (folder / "summary.json").exists():
        changes = [word for setting in (*settings, "runtime.time=false") for word in ("--set", setting)]
        begun = (folder / "config.toml").exists()
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
            main(["resume", str(folder)] if begun else [*words, *changes, "--out", str(folder)])
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def run(work: Path) -> None:
    """Every job with every seed; the record is written after each."""
    record: list[dict[str, Any]] = []
    for seed in SEEDS:
        dense = work / f"dense-{seed}"
        summary_of(dense, ["train", "demo"], [f"seed={seed}"])
        for what, value, settings in jobs():
            weights = [f"model.weights={dense / 'model.safetensors'}"] if what != "data" else []
            folder = work / f"{what.replace(' ', '-')}-{value:g}-{seed}"
            done = summary_of(folder, ["prune", "demo"], [f"seed={seed}", *weights, *settings])
            channels = {name: done["channels"][name][0] for name in done["undecided"]}
            doubt = sum(done["undecided"][name] * count for name, count in channels.items()) / sum(channels.values())
            figures = {name: done[name] for name in KEPT} | {"undecided": doubt}
            record.append({"what": what, "value": value, "seed": seed, "settings": settings, **figures})
            RECORD.write_text(json.dumps(record, indent=1) + "\n")
            print(what, value, seed, f"{done['macs_ratio']:.1f}x {done['error_before']} -> {done['error_after']}")


def curve(record: list[dict[str, Any]], what: str, key: str) -> tuple[list[float], list[float]]:
    """The values at which something was varied, and the mean of a figure over the seeds at each."""
    values = sorted({row["value"] for row in record if row["what"] == what})
    means = [statistics.mean(r[key] for r in record if r["what"] == what and r["value"] == v) for v in values]
    return values, means


def axes(title: str, x: str, y: str, size: tuple[float, float] = (5.2, 3.4)) -> tuple[Any, Any]:
    """An empty drawing in the manner of all of them."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "rbprune", "font.family": "DejaVu Sans", "font.size": 10})
    from matplotlib import pyplot

    figure, plot = pyplot.subplots(figsize=size, layout="constrained")
    plot.set_title(title, fontsize=11, loc="left", color="#1a202c")
    plot.set_xlabel(x)
    plot.set_ylabel(y)
    plot.spines[["top", "right"]].set_visible(False)
    return figure, plot


def save(figure: Any, file: Path) -> None:
    """The same drawing is the same file."""
    figure.savefig(file, metadata={"Date": None, "Creator": None})


def plain_ticks(plot: Any, values: list[float], labels: list[str] | None = None) -> None:
    """A logarithmic axis whose ticks are the values that were tried."""
    plot.set_xscale("log")
    plot.set_xticks(values, labels or [f"{value:g}" for value in values])
    plot.set_xticks([], minor=True)


def draw_price(record: list[dict[str, Any]], folder: Path) -> None:
    """MACs and error against the price."""
    figure, plot = axes("The price decides how much goes", "price, nats per example", "times fewer MACs")
    prices, smaller = curve(record, "price", "macs_ratio")
    plot.plot(prices, smaller, "o-", color=BLUE, label="times fewer MACs (left)")
    plot.set_ylim(0, None)
    plain_ticks(plot, prices)
    right = plot.twinx()
    right.plot(*curve(record, "price", "error_after"), "s--", color=ORANGE, label="test error (right)")
    dense = statistics.mean(row["error_before"] for row in record if row["what"] == "price")
    right.axhline(dense, color=GREY, linewidth=0.8, linestyle=":", label=f"dense network: {dense:.2f} %")
    right.set_ylim(0, 4)
    right.set_ylabel("test error, %")
    lines = [*plot.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
    plot.legend(lines, [line.get_label() for line in lines], frameon=False, fontsize=9, loc="upper left")
    save(figure, folder / "price.svg")


def draw_ratio(record: list[dict[str, Any]], folder: Path) -> None:
    """Error against how many times fewer MACs were asked for."""
    figure, plot = axes("The same budget, ever smaller", "times fewer MACs that were asked for", "error, %")
    for key, style, colour, label in (
        ("error_after", "o-", BLUE, "test error (1,000 images)"),
        ("val_error_after", "s--", ORANGE, "validation error (600 images)"),
    ):
        ratios, errors = curve(record, "ratio", key)
        plot.plot(ratios, errors, style, color=colour, label=label)
        dense = statistics.mean(row[key.replace("after", "before")] for row in record if row["what"] == "ratio")
        plot.axhline(dense, color=colour, linewidth=0.8, linestyle=":", label=f"the same, dense: {dense:.2f} %")
    plain_ticks(plot, ratios, [f"{ratio:g}x" for ratio in ratios])
    plot.set_ylim(0, 4)
    plot.legend(frameon=False, fontsize=9)
    save(figure, folder / "ratio.svg")


def draw_data(record: list[dict[str, Any]], folder: Path) -> None:
    """Error before and after, and MACs, against the number of training images."""
    figure, plot = axes("The default price at three sizes of data", "training images", "test error, %")
    sizes, before = curve(record, "data", "error_before")
    plot.plot(sizes, before, "s--", color=GREY, label="dense network")
    after = curve(record, "data", "error_after")[1]
    plot.plot(sizes, after, "o-", color=BLUE, label="pruned, default price")
    for size, error, smaller in zip(sizes, after, curve(record, "data", "macs_ratio")[1], strict=True):
        plot.annotate(
            f"{smaller:.1f}x", (size, error), textcoords="offset points", xytext=(4, 8), color=BLUE, fontsize=9
        )
    plain_ticks(plot, sizes)
    plot.set_ylim(0, 10)
    plot.legend(frameon=False, fontsize=9)
    save(figure, folder / "data.svg")


def draw_stages(record: list[dict[str, Any]], folder: Path) -> None:
    """How much goes against the steps that a stage may take."""
    figure, plot = axes("Short stages remove less", "steps that a stage may take", "times fewer MACs")
    steps, smaller = curve(record, "stages", "macs_ratio")
    plot.plot(steps, smaller, "o-", color=BLUE, label="times fewer MACs, default price")
    for step, ratio, error in zip(steps, smaller, curve(record, "stages", "error_after")[1], strict=True):
        place = {"textcoords": "offset points", "xytext": (-6, 8), "ha": "right"}
        plot.annotate(f"{error:.1f} %", (step, ratio), color=ORANGE, fontsize=9, **place)
    plot.plot([], [], " ", label="orange: test error")
    plain_ticks(plot, steps, [f"{step:.0f}" for step in steps])
    plot.set_ylim(0, None)
    plot.margins(x=0.12)
    plot.legend(frameon=False, fontsize=9, loc="upper left")
    save(figure, folder / "stages.svg")


def draw_vgg16(folder: Path) -> None:
    """What is left of every layer of VGG16."""
    found = json.loads(VGG16.read_text())
    before, after = zip(*found["channels"].values(), strict=True)
    title = (
        f"VGG16 on CIFAR10: {found['macs_ratio']:.1f}x fewer MACs, {found['params_ratio']:.0f}x fewer weights, "
        f"test error {found['error_before']:.2f} % to {found['error_after']:.2f} %"
    )
    figure, plot = axes(title, "layer", "channels", (8, 2.9))
    places = range(1, len(before) + 1)
    plot.bar(places, before, color=LIGHT, label="dense")
    bars = plot.bar(places, after, color=BLUE, label="left after pruning")
    plot.bar_label(bars, color=BLUE, fontsize=8, padding=1)
    plot.set_xticks(list(places))
    plot.legend(frameon=False, fontsize=9, loc="upper left")
    save(figure, folder / "vgg16.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "draw"))
    parser.add_argument("folder", nargs="?", type=Path, help="where the runs, or the pictures, go")
    given = parser.parse_args()
    if given.what == "run":
        if given.folder is None:
            parser.error("run needs a folder for the runs")
        run(given.folder)
        return
    record, folder = json.loads(RECORD.read_text()), given.folder or DOCS / "assets"
    for draw in (draw_price, draw_ratio, draw_data, draw_stages):
        draw(record, folder)
    draw_vgg16(folder)


if __name__ == "__main__":
    main()
