"""The charts of one run: error, recovery, loss, KL and undecided channels, each over the cost of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup

from rbprune.logging.event_fields import as_text
from rbprune.report.charts import Band, Point, Reference, line_chart
from rbprune.report.run_record import Event, RunRecord
from rbprune.report.svg import general
from rbprune.utils.numbers import as_number, decimal, score, share

PHASES = {"pretrain": "pretrain", "prune": "prune", "finetune": "fine-tune"}


@dataclass(frozen=True)
class TitledChart:
    """A chart with its title and a note beside it; a ``wide`` one takes the whole row of the page."""

    title: str
    note: str
    drawing: Markup
    wide: bool = False


@dataclass(frozen=True)
class _Place:
    """An event of the run at its place on the axis of the cost."""

    x: float
    event: Event


def phase_name(phase: Any) -> str:
    """The name of a phase as pages show it; an unknown one stays as it is."""
    return PHASES.get(as_text(phase), as_text(phase))


def run_charts(run: RunRecord) -> list[TitledChart]:
    """Those charts of the run that have something to show."""
    places, x_label = _places(run)
    bands = _bands(places)
    charts = [*_error_charts(run, places, bands, x_label), *_training_charts(places, bands, x_label)]
    return [chart for chart in charts if chart.drawing]


def _error_charts(run: RunRecord, places: list[_Place], bands: list[Band], x_label: str) -> list[TitledChart]:
    """The validation error (or loss) over the whole run, and again while fine-tuning, which has a scale of its own."""
    shown = partial(score, metric=run.metric)
    dense = as_number(run.start.get("error_before"))
    dense = as_number(run.summary.get("error_before")) if dense is None else dense
    reference = None if dense is None else Reference(dense, f"dense model {shown(dense)}")
    common: dict[str, Any] = {
        "reference": reference,
        "show": _error_tick if run.metric == "error" else general,
        "x_label": x_label,
    }
    cuts = [place.x for place in places if place.event["event"] == "stage"]
    errors, title = _points(places, "val_error", shown), f"Validation {run.metric}"
    drawing = line_chart(errors, title=title, bands=bands, marks=cuts, width=1060, **common)
    charts = [TitledChart(title, "ticks on the axis: channels cut" if cuts else "", drawing, wide=True)]
    tuning = next((band for band in bands if band.kind == "finetune"), None)
    if tuning is not None and len(bands) > 1:
        first = next(i for i, place in enumerate(places) if place.event.get("phase") == "finetune")
        recovery = _points(places[max(0, first - 1) :], "val_error", shown)
        drawing = line_chart(recovery, title="Recovery", bands=[tuning], **common)
        charts.append(TitledChart("Recovery", f"validation {run.metric} while fine-tuning", drawing))
    return charts


def _training_charts(places: list[_Place], bands: list[Band], x_label: str) -> list[TitledChart]:
    """The training loss of all epochs, and what only those of pruning have: KL and undecided channels."""
    cuts = [place.x for place in places if place.event["event"] == "stage"]
    epochs = [place for place in places if place.event["event"] == "epoch"]
    losses = _points(epochs, "loss", decimal)
    drawing = line_chart(losses, title="Loss", bands=bands, marks=cuts, x_label=x_label)
    charts = [TitledChart("Loss", "training loss", drawing)]
    pruning = [place for place in epochs if place.event.get("phase") == "prune"]
    common: dict[str, Any] = {
        "bands": [band for band in bands if band.kind == "prune"],
        "marks": cuts,
        "x_label": x_label,
        "from_zero": True,
    }
    for key, title, note, show, tick in (
        ("kl", "KL", "divergence of the rates from their prior while pruning", decimal, general),
        ("undecided", "Undecided", "share of channels neither kept nor dropped yet", share, _share_tick),
    ):
        points = _points(pruning, key, show)
        if any(point.y for point in points):
            charts.append(TitledChart(title, note, line_chart(points, title=title, show=tick, **common)))
    return charts


def _places(run: RunRecord) -> tuple[list[_Place], str]:
    """The epochs and stages of the run on its axis, and the label of that axis.

    The axis is the cost in dense epochs, or counts epochs where the cost of one of them is unknown.
    """
    costs = [as_number(event.get("dense_epochs")) for event in run.epochs]
    known = bool(costs) and all(cost is not None for cost in costs)
    places: list[_Place] = []
    here = 0.0
    for event in run.timeline:
        if event["event"] == "epoch":
            here = (as_number(event.get("dense_epochs")) or 0.0) if known else here + 1
            places.append(_Place(here, event))
        elif event["event"] == "stage":
            places.append(_Place(here, event))
    return places, "cost, dense-epoch equivalents" if known else "epochs"


def _bands(places: list[_Place]) -> list[Band]:
    """One band for every stretch of epochs of the same phase."""
    bands: list[Band] = []
    here = 0.0
    for place in places:
        if place.event["event"] != "epoch":
            continue
        label = phase_name(place.event.get("phase"))
        if bands and bands[-1].label == label:
            bands[-1] = bands[-1]._replace(end=place.x)
        else:
            bands.append(Band(here, place.x, label, as_text(place.event.get("phase"))))
        here = place.x
    return bands


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
