"""Make a table or figure anew: its runs, each done once, then the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.report.html import environment
from rbprune.report.sheet import Sheet
from rbprune.reproduce import paper
from rbprune.reproduce.experiments import FIGURES, Experiment, Work, check_overrides
from rbprune.reproduce.figures import Figure, draw, read_run
from rbprune.reproduce.speed import gpu_sheet, paper_pairs
from rbprune.reproduce.tables import channels_by_layer, channels_by_stage, comparison
from rbprune.runs.folder import RunFolder
from rbprune.runs.series import dense_weights, reason, run_once
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import Config
from rbprune.utils.files import write_atomic
from rbprune.utils.interrupt import Interrupted

Summaries = Mapping[str, dict[str, Any]]
"""What each run came to, by the paper's name for its method."""
_FILLED = ("model.classes", "model.input_shape", "model.weights")
"""Settings that a run knows only once it has begun, where nobody gave them."""
ROUNDS = 50
"""Of timing, as in the paper."""


@dataclass
class Reproduction:
    """What came of it; ``notes`` say which runs failed, and why."""

    experiment: Experiment
    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)
    sheets: list[Sheet] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """Which runs were there already, with other settings than those asked for."""

    def to_json(self) -> str:
        """For programs."""
        sheets = [asdict(sheet) for sheet in self.sheets]
        found = {"experiment": self.experiment.name, "runs": self.summaries, "tables": sheets, "notes": self.notes}
        found |= {"figures": [figure.told() for figure in self.figures], "remarks": self.remarks}
        return json.dumps(found, indent=2)


def reproduce(
    experiment: Experiment,
    folder: Path,
    overrides: Sequence[str],
    *,
    console: Console,
    command: list[str],
    rounds: int = ROUNDS,
) -> Reproduction:
    """Run what is missing below ``folder``, then put our figures beside the paper's. One failure costs one row."""
    check_overrides(experiment, overrides)
    folder.mkdir(parents=True, exist_ok=True)
    found = Reproduction(experiment)
    for work in experiment.works:
        try:
            found.remarks += [r for r in _other_settings(work, folder, overrides) if r not in found.remarks]
            found.summaries[work.name] = _one(work, folder, overrides, console, command)
        except Interrupted:
            raise
        except Exception as error:
            found.notes.append(f"{work.name}: {reason(error, folder / f'{work.name}-failed.txt')}")
            console.print(found.notes[-1], markup=False, highlight=False, soft_wrap=True)
    _gather(found, folder, rounds)
    return found


def _one(work: Work, folder: Path, overrides: Sequence[str], console: Console, command: list[str]) -> dict[str, Any]:
    given = [*work.overrides, *overrides]

    def settings() -> Any:
        title = f"dense network for {work.recipe}"
        weights = dense_weights(work.recipe, given, folder / f"{work.recipe}-dense", title=title, console=console)
        return load_recipe(work.recipe, [*given, *weights])

    return run_once(folder / work.name, settings, title=work.name, console=console, command=command)


def _other_settings(work: Work, folder: Path, overrides: Sequence[str]) -> list[str]:
    """Where the runs that are there already, of the work and of its dense network, differ from those asked for."""
    wanted = load_recipe(work.recipe, [*work.overrides, *overrides])
    found = _differences(folder / work.name, wanted, "")
    if wanted.model.weights is None:
        found += _differences(folder / f"{work.recipe}-dense", wanted, ("seed", "model.", "data.", "pretrain."))
    return found


def _differences(run: Path, wanted: Config, sections: str | tuple[str, ...]) -> list[str]:
    if not RunFolder(run).is_run:
        return []
    there = RunFolder(run).read_settings()
    before, now = flat(there.model_dump()), flat(wanted.model_dump())
    keys = [key for key in now | before if key.startswith(sections) and before.get(key) != now.get(key)]
    keys = [key for key in keys if not (now.get(key) is None and key in _FILLED)]
    changed = ", ".join(f"{key} = {before.get(key)} (asked for: {now.get(key)})" for key in keys)
    return [f"{run.name}: made before, with {changed}"] if changed else []


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as ``section.key``.

    >>> flat({"a": {"b": 1, "c": {"d": 2}}, "e": 3})
    {'a.b': 1, 'a.c.d': 2, 'e': 3}
    """
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def _gather(found: Reproduction, folder: Path, rounds: int) -> None:
    """Tables and figures of the runs that are finished."""
    experiment, works = found.experiment, [w for w in found.experiment.works if w.name in found.summaries]
    ours = {work.label: found.summaries[work.name] for work in works}
    if experiment.name in FIGURES:
        labels = {f"{found.summaries[w.name]['model']} {w.label}": read_run(folder / w.name) for w in works}
        found.figures += draw(experiment.name, labels)
    if experiment.name in _TABLES:
        found.sheets += _TABLES[experiment.name](experiment.title, ours)
    if experiment.name == "cifar10":
        found.figures += draw("finetune", {work.label: read_run(folder / work.name) for work in works})
    if experiment.name == "gpu":
        found.sheets.append(gpu_sheet(paper_pairs(), rounds=rounds))


def _cifar10(title: str, ours: Summaries) -> list[Sheet]:
    return [comparison(title, paper.CIFAR10, ours)]


def _vgg16(title: str, ours: Summaries) -> list[Sheet]:
    layers = [channels_by_layer(paper.VGG16_CHANNELS, summary) for summary in ours.values()]
    return [comparison(title, paper.VGG16, ours), *layers]


def _resnet50(title: str, ours: Summaries) -> list[Sheet]:
    printed = {"RBP": paper.RESNET50_STAGES}
    stages = [channels_by_stage(label, printed.get(label, ()), summary) for label, summary in ours.items()]
    return [comparison(title, paper.RESNET50, ours), *stages]


_TABLES: dict[str, Callable[[str, Summaries], list[Sheet]]] = {
    "cifar10": _cifar10,
    "vgg16-ilsvrc": _vgg16,
    "resnet50-ilsvrc": _resnet50,
}


def write_page(found: Reproduction, folder: Path, command: str) -> Path:
    """``folder/NAME.html`` and ``NAME.md``: tables and figures."""
    page = (
        environment()
        .get_template("reproduce.html.j2")
        .render(
            title=found.experiment.title,
            sheets=found.sheets,
            figures=found.figures,
            notes=[*found.remarks, *found.notes],
            command=command,
        )
    )
    name = found.experiment.name
    figures = [f"**{figure.title}**: {figure.note}\n" for figure in found.figures]
    write_atomic(folder / f"{name}.md", "\n".join([*(sheet.markdown() for sheet in found.sheets), *figures]))
    write_atomic(folder / f"{name}.json", found.to_json())
    return write_atomic(folder / f"{name}.html", page)
