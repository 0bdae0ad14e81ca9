"""Listeners to a run: MLflow, Weights & Biases, trackio or anything else is handed every event as it happens."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rbprune.errors import ConfigError, first_line
from rbprune.utils.imports import find


@runtime_checkable
class Tracker(Protocol):
    """What listens to a run. Both methods may raise: the run goes on without the tracker then."""

    def log(self, event: Mapping[str, Any]) -> None:
        """An event, with the fields of ``events.jsonl`` (docs/runs.md): its name is ``event["event"]``."""

    def close(self) -> None:
        """The run is over, or was interrupted."""


class TrackerGroup:
    """Hands events to several trackers; one that raises is left out from then on, with a warning.

    ``own`` are closed at the end, ``lent`` ones belong to the user, who may go on using them.
    """

    def __init__(self, own: Sequence[Tracker], lent: Sequence[Tracker], warn: Callable[[str], None]) -> None:
        self._own, self._listening, self._warn = list(own), [*own, *lent], warn

    def log(self, event: Mapping[str, Any]) -> None:
        """Tell all of an event; each gets a copy, so that none can change what the run remembers."""
        for tracker in list(self._listening):
            self._ask(tracker, "log", copy.deepcopy(dict(event)))

    def close(self) -> None:
        """Close those that are our own, without another word of those that failed before; calls after that do
        nothing."""
        own, self._own = self._own, []
        for tracker in own:
            if any(tracker is other for other in self._listening):
                self._ask(tracker, "close")
            else:
                with contextlib.suppress(Exception):
                    tracker.close()
        self._listening = []

    def _ask(self, tracker: Tracker, name: str, *given: Any) -> None:
        try:
            getattr(tracker, name)(*given)
        except Exception as error:  # of any package, over any network: no reason to lose hours of training
            self._listening = [other for other in self._listening if other is not tracker]
            self._warn(
                f"the tracker {type(tracker).__name__} failed in {name}: {type(error).__name__}: {first_line(error)}; "
                "the run goes on without it"
            )


def make_tracker(spec: str, settings: Mapping[str, Any], folder: Path | None) -> Tracker:
    """The tracker that a function of the user's returns, called with those of ``settings`` (the settings of the run as
    nested tables) and ``folder`` (that of the run, or None) which it takes."""
    factory = find(spec, error=ConfigError, installed=False)
    offered = {"settings": settings, "folder": folder}
    made = factory(**{name: value for name, value in offered.items() if factory.accepts(name)})
    return check_tracker(made, f"runtime.tracker = {spec!r} returned")


def check_tracker(tracker: Any, where: str) -> Tracker:
    """Refuse what cannot listen, before a run begins."""
    if isinstance(tracker, type) or not isinstance(tracker, Tracker):
        raise ConfigError(f"{where} {tracker!r:.80}, which is no tracker: it needs the methods log(event) and close()")
    return tracker
