"""What came of a reproduction: its tables and figures, and the page that shows them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rbprune.report.html import environment
from rbprune.report.plain_table import PlainTable
from rbprune.reproduce import paper
from rbprune.reproduce.experiments import FIGURES, Experiment
from rbprune.reproduce.figures import Figure, draw, read_run
from rbprune.reproduce.speed import gpu_table, paper_pairs
from rbprune.reproduce.tables import channels_by_layer, channels_by_stage, comparison
from rbprune.utils.files import write_atomic

Summaries = Mapping[str, dict[str, Any]]
"""What each run came to, by the paper's name for its method."""
ROUNDS = 50
"""How often each network is timed, as in the paper."""


@dataclass
class Reproduction:
    """An experiment made anew; ``notes`` say which runs failed, and why."""

    experiment: Experiment
    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: list[PlainTable] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """Which runs were there already, with other settings than those asked for."""

    def to_json(self) -> str:
        """Return everything but the drawings, for programs."""
        tables = [asdict(table) for table in self.tables]
        found = {"experiment": self.experiment.name, "runs": self.summaries, "tables": tables, "notes": self.notes}
        found |= {"figures": [figure.told() for figure in self.figures], "remarks": self.remarks}
        return json.dumps(found, indent=2)


def gather(found: Reproduction, folder: Path, rounds: int) -> None:
    """Make the tables and figures of the runs that are finished; ``rounds`` are those of timing."""
    experiment, runs = found.experiment, [run for run in found.experiment.runs if run.name in found.summaries]
    ours = {run.label: found.summaries[run.name] for run in runs}
    if experiment.name in FIGURES:
        labels = {f"{found.summaries[run.name]['model']} {run.label}": read_run(folder / run.name) for run in runs}
        found.figures += draw(experiment.name, labels)
    if experiment.name in _TABLES:
        found.tables += _TABLES[experiment.name](experiment.title, ours)
    if experiment.name == "cifar10":
        found.figures += draw("finetune", {run.label: read_run(folder / run.name) for run in runs})
    if experiment.name == "gpu":
        found.tables.append(gpu_table(paper_pairs(), rounds=rounds))


def _cifar10(title: str, ours: Summaries) -> list[PlainTable]:
    return [comparison(title, paper.CIFAR10, ours)]


def _vgg16(title: str, ours: Summaries) -> list[PlainTable]:
    layers = [channels_by_layer(paper.VGG16_CHANNELS, summary) for summary in ours.values()]
    return [comparison(title, paper.VGG16, ours), *layers]


def _resnet50(title: str, ours: Summaries) -> list[PlainTable]:
    printed = {"RBP": paper.RESNET50_STAGES}
    stages = [channels_by_stage(label, printed.get(label, ()), summary) for label, summary in ours.items()]
    return [comparison(title, paper.RESNET50, ours), *stages]


_TABLES: dict[str, Callable[[str, Summaries], list[PlainTable]]] = {
    "cifar10": _cifar10,
    "vgg16-ilsvrc": _vgg16,
    "resnet50-ilsvrc": _resnet50,
}


def write_page(found: Reproduction, folder: Path, command: str) -> Path:
    """Write ``folder/NAME.html``, ``NAME.md`` and ``NAME.json`` with the tables and figures; returns the first."""
    page = (
        environment()
        .get_template("reproduce.html.j2")
        .render(
            title=found.experiment.title,
            tables=found.tables,
            figures=found.figures,
            notes=[*found.remarks, *found.notes],
            command=command,
        )
    )
    name = found.experiment.name
    figures = [f"**{figure.title}**: {figure.note}\n" for figure in found.figures]
    write_atomic(folder / f"{name}.md", "\n".join([*(table.markdown() for table in found.tables), *figures]))
    write_atomic(folder / f"{name}.json", found.to_json())
    return write_atomic(folder / f"{name}.html", page)
