"""Which curves a run has: error, recovery, loss, KL and undecided channels over the cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup

from rbprune.logging.event_fields import text
from rbprune.report.curves import Band, Point, line_chart
from rbprune.report.run import Event, Run
from rbprune.utils.numbers import decimal, number, score, share

PHASES = {"pretrain": "pretrain", "prune": "prune", "finetune": "fine-tune"}


@dataclass(frozen=True)
class Chart:
    """A titled drawing; ``wide`` ones take the whole row."""

    title: str
    note: str
    drawing: Markup
    wide: bool = False


@dataclass(frozen=True)
class _Place:
    """An event of the run at its place on the cost axis."""

    x: float
    event: Event


def curves(run: Run) -> list[Chart]:
    """The charts that have something to show."""
    places, x_label = _places(run)
    bands = _bands(places)
    marks = [place.x for place in places if place.event["event"] == "stage"]
    dense = number(run.start.get("error_before"))
    dense = number(run.summary.get("error_before")) if dense is None else dense
    shown = partial(score, metric=run.metric)
    tick = _error if run.metric == "error" else "{:g}".format
    reference = None if dense is None else (dense, f"dense model {shown(dense)}")
    common: dict[str, Any] = {"bands": bands, "marks": marks, "x_label": x_label}
    errors = _points(places, "val_error", shown)
    title = f"Validation {run.metric}"
    charts = [
        Chart(
            title,
            "ticks on the axis: channels cut" if marks else "",
            line_chart(errors, title=title, reference=reference, show=tick, width=1060, **common),
            wide=True,
        )
    ]
    tuning = next((band for band in bands if band.kind == "finetune"), None)
    if tuning is not None and len(bands) > 1:
        first = next(i for i, place in enumerate(places) if place.event.get("phase") == "finetune")
        recovery = _points(places[max(0, first - 1) :], "val_error", shown)
        drawing = line_chart(
            recovery, title="Recovery", reference=reference, show=tick, x_label=x_label, bands=[tuning]
        )
        charts.append(Chart("Recovery", f"validation {run.metric} while fine-tuning", drawing))
    epochs = [place for place in places if place.event["event"] == "epoch"]
    charts.append(Chart("Loss", "training loss", line_chart(_points(epochs, "loss", decimal), title="Loss", **common)))
    pruning = [place for place in epochs if place.event.get("phase") == "prune"]
    common["bands"] = [band for band in bands if band.kind == "prune"]
    for key, title, note, show, axis in (
        ("kl", "KL", "divergence of the rates from their prior while pruning", decimal, "{:g}".format),
        ("undecided", "Undecided", "share of channels neither kept nor dropped yet", share, _share),
    ):
        points = _points(pruning, key, show)
        if any(point.y for point in points):
            drawing = line_chart(points, title=title, show=axis, from_zero=True, **common)
            charts.append(Chart(title, note, drawing))
    return [chart for chart in charts if chart.drawing]


def _places(run: Run) -> tuple[list[_Place], str]:
    costs = [number(event.get("dense_epochs")) for event in run.epochs]
    known = bool(costs) and all(cost is not None for cost in costs)
    places: list[_Place] = []
    here = 0.0
    for event in run.timeline:
        if event["event"] == "epoch":
            here = (number(event.get("dense_epochs")) or 0.0) if known else here + 1
            places.append(_Place(here, event))
        elif event["event"] == "stage":
            places.append(_Place(here, event))
    return places, "cost, dense-epoch equivalents" if known else "epochs"


def _bands(places: list[_Place]) -> list[Band]:
    bands: list[Band] = []
    here = 0.0
    for place in places:
        if place.event["event"] != "epoch":
            continue
        label = PHASES.get(text(place.event.get("phase")), text(place.event.get("phase")))
        if bands and bands[-1].label == label:
            bands[-1] = bands[-1]._replace(end=place.x)
        else:
            bands.append(Band(here, place.x, label, text(place.event.get("phase"))))
        here = place.x
    return bands


def _points(places: list[_Place], key: str, show: Callable[[Any], str]) -> list[Point]:
    found = ((place, number(place.event.get(key))) for place in places)
    return [
        Point(place.x, value, f"{_name(place.event)}: {show(value)}") for place, value in found if value is not None
    ]


def _name(event: Event) -> str:
    stage = number(event.get("stage"))
    where = "" if stage is None else f" stage {stage + 1:.0f}"
    if event["event"] == "stage":
        return f"after{where or ' a stage'}"
    return f"{PHASES.get(text(event.get('phase')), text(event.get('phase')))}{where} epoch {text(event.get('epoch'))}"


def _error(value: float) -> str:
    return f"{value:g} %"


def _share(value: float) -> str:
    return f"{100 * value:g} %"
