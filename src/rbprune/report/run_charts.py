"""The charts of one run. Every phase (pretraining, pruning, fine-tuning) has charts with axes of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup

from rbprune.logging.event_fields import as_text
from rbprune.report.charts import Band, Point, Reference, line_chart
from rbprune.report.run_record import Event, RunRecord
from rbprune.report.svg import both_widths, general
from rbprune.utils.numbers import as_number, decimal, score, share

PHASES = {"pretrain": "pretrain", "prune": "prune", "finetune": "fine-tune"}
WHILE = {"prune": "while pruning", "finetune": "while fine-tuning", "pretrain": "while pretraining"}
"""The phases in the order of their charts, each with the words for its titles."""


@dataclass(frozen=True)
class TitledChart:
    """A chart with its title and a note beside it; a ``wide`` one takes the whole row of the page."""

    title: str
    note: str
    drawing: Markup
    wide: bool = False


@dataclass(frozen=True)
class _Place:
    """An event of the run at its place on the axis of its phase."""

    x: float
    event: Event


@dataclass(frozen=True)
class _PhasePlaces:
    """The events of one phase on an axis of its own: its cost where that is known, else its epochs."""

    name: str
    places: list[_Place]
    x_label: str

    @property
    def cuts(self) -> list[float]:
        """Where on the axis channels were cut."""
        return [place.x for place in self.places if place.event["event"] == "stage"] if self.name == "prune" else []

    @property
    def stages(self) -> list[Band]:
        """A background for each stage, shaded in turns, with the number of the stage above it."""
        ends = [(place.x, as_number(place.event.get("stage"))) for place in self.places if place.x in self.cuts]
        found: list[Band] = []
        begin = 0.0
        for end, number in dict(ends).items():
            label = "" if number is None else f"{number + 1:.0f}"
            found.append(Band(begin, end, label, "odd" if len(found) % 2 else "even"))
            begin = end
        return found

    @property
    def epochs(self) -> list[_Place]:
        """The places of epochs alone."""
        return [place for place in self.places if place.event["event"] == "epoch"]


def phase_name(phase: Any) -> str:
    """The name of a phase as pages show it; an unknown one stays as it is."""
    return PHASES.get(as_text(phase), as_text(phase))


def run_charts(run: RunRecord) -> list[TitledChart]:
    """Those charts of the run that have something to show: errors, then losses, then what only pruning has."""
    phases = _phases(run)
    charts = [_error_chart(run, phase) for phase in phases]
    charts += [_loss_chart(phase) for phase in phases]
    charts += [chart for phase in phases if phase.name == "prune" for chart in _inference_charts(phase)]
    return [chart for chart in charts if chart.drawing]


def _error_chart(run: RunRecord, phase: _PhasePlaces) -> TitledChart:
    """The validation error (or loss) of a phase beside that of the dense network, also on validation data."""
    shown = partial(score, metric=run.metric)
    dense = run.val_error_before
    points = _points(phase.places, "val_error", shown)
    if phase.name == "prune" and dense is not None and points:
        points = [Point(0.0, dense, f"dense network: {shown(dense)}"), *points]
    draw = partial(
        line_chart,
        points,
        title=f"Validation {run.metric} {_while(phase)}",
        marks=phase.cuts,
        bands=phase.stages,
        reference=None if dense is None else Reference(dense, f"dense network {shown(dense)}"),
        x_label=phase.x_label,
        show=_error_tick if run.metric == "error" else general,
    )
    note = "numbers: the stages, at whose ends channels were cut" if phase.cuts else ""
    if phase.name != "prune":
        return TitledChart(f"Validation {run.metric} {_while(phase)}", note, draw())
    title = f"Validation {run.metric} {_while(phase)}"
    return TitledChart(title, note, both_widths(lambda width: draw(width=width)), wide=True)


def _loss_chart(phase: _PhasePlaces) -> TitledChart:
    title = f"Training loss {_while(phase)}"
    losses = _points(phase.epochs, "loss", decimal)
    return TitledChart(title, "", line_chart(losses, title=title, marks=phase.cuts, x_label=phase.x_label))


def _inference_charts(phase: _PhasePlaces) -> list[TitledChart]:
    """What only epochs of pruning have: KL and undecided channels."""
    charts = []
    for key, title, note, show, tick in (
        ("kl", "KL", "divergence of the rates from their prior while pruning", decimal, general),
        ("undecided", "Undecided", "share of channels neither kept nor dropped yet", share, _share_tick),
    ):
        points = _points(phase.epochs, key, show)
        if any(point.y for point in points):
            drawing = line_chart(
                points, title=title, marks=phase.cuts, x_label=phase.x_label, show=tick, from_zero=True
            )
            charts.append(TitledChart(title, note, drawing))
    return charts


def _while(phase: _PhasePlaces) -> str:
    return WHILE.get(phase.name, f"in phase {phase.name}")


def _phases(run: RunRecord) -> list[_PhasePlaces]:
    """The epochs and stages of the run, phase by phase; phases that come in turns are joined, each to itself.

    Pruning is drawn over its cost in dense epochs, or over its epochs where the cost of one is unknown, the others over
    their epochs. Fine-tuning begins with the network that the last cut left.
    """
    known = bool(run.epochs) and all(as_number(event.get("dense_epochs")) is not None for event in run.epochs)
    places: dict[str, list[_Place]] = {}
    reached: dict[str, float] = {}
    spent, cut = 0.0, None
    for event in run.timeline:
        if event["event"] == "stage":
            places.setdefault("prune", []).append(_Place(reached.get("prune", 0.0), event))
            cut = event
        elif event["event"] == "epoch":
            phase, cost = as_text(event.get("phase")), as_number(event.get("dense_epochs")) or 0.0
            here = reached.get(phase, 0.0)
            if phase == "finetune" and cut is not None:
                places.setdefault(phase, []).append(_Place(here, cut))
                cut = None
            by_cost = phase == "prune" and known
            number = as_number(event.get("epoch"))
            counted = here + 1 if number is None or phase not in ("pretrain", "finetune") else max(here, number)
            reached[phase] = here + max(0.0, cost - spent) if by_cost else counted
            spent = cost
            places.setdefault(phase, []).append(_Place(reached[phase], event))
    order = [*WHILE, *(name for name in places if name not in WHILE)]
    label = {"prune": "cost, dense epochs since pruning began" if known else "epochs"}
    return [_PhasePlaces(name, places[name], label.get(name, "epochs")) for name in order if name in places]


def _points(places: list[_Place], key: str, show: Callable[[Any], str]) -> list[Point]:
    """The value of the field ``key`` wherever an event has one."""
    found = ((place, as_number(place.event.get(key))) for place in places)
    return [
        Point(place.x, value, f"{_event_name(place.event)}: {show(value)}")
        for place, value in found
        if value is not None
    ]


def _event_name(event: Event) -> str:
    stage = as_number(event.get("stage"))
    where = "" if stage is None else f" stage {stage + 1:.0f}"
    if event["event"] == "stage":
        return f"after{where or ' a stage'}"
    return f"{phase_name(event.get('phase'))}{where} epoch {as_text(event.get('epoch'))}"


def _error_tick(value: float) -> str:
    return f"{value:g} %"


def _share_tick(value: float) -> str:
    return f"{100 * value:g} %"
