"""Progress bars of a run: stages above, steps of the running epoch below, each with its time left."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from rbprune.utils.numbers import duration, score


class TimeLeft:
    """The time left at the mean pace so far, counting down between two completions.

    The estimate of the library rich forgets samples after half a minute, and so never knows the pace of stages.
    """

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self._clock = total, clock
        self._first: int | None = None
        self._begin = self._last = clock()
        self._done = 0

    def update(self, completed: int) -> None:
        """Note that ``completed`` are done now; those of the first call, in a resumed run, took no time here."""
        now = self._clock()
        if self._first is None or completed < self._done:
            self._first, self._begin = completed, now
        self._done, self._last = completed, now

    def remaining(self) -> float | None:
        """Seconds left, or None while the pace is unknown."""
        if self._first is None or self._done <= self._first:
            return None
        pace = (self._last - self._begin) / (self._done - self._first)
        return max(0.0, pace * (self.total - self._done) - (self._clock() - self._last))


class _TimeLeftColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        left: TimeLeft | None = task.fields.get("time_left")
        seconds = None if left is None else left.remaining()
        return Text("" if seconds is None else f"{duration(seconds)} left", style="cyan")


class Progress:
    """Two progress bars, of stages and steps. Off a terminal nothing is drawn, and :meth:`log` just prints its line.

    >>> with Progress(Console()) as progress:  # doctest: +SKIP
    ...     progress.stages(13)
    ...     progress.stage(0, "features.0")
    ...     progress.epoch(375, "epoch 1/10")
    ...     progress.step(loss=0.21)
    """

    def __init__(self, console: Console, enabled: bool | None = None) -> None:
        self.console = console
        self.enabled = console.is_terminal if enabled is None else enabled
        self._live: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._times_left: dict[str, TimeLeft] = {}
        self._steps = 0

    def __enter__(self) -> Progress:
        if self.enabled:
            columns: tuple[ProgressColumn, ...] = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                _TimeLeftColumn(),
                TextColumn("[dim]{task.fields[note]}"),
            )
            self._live = RichProgress(*columns, console=self.console, transient=True, refresh_per_second=5)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._tasks.clear()
            self._times_left.clear()

    def stages(self, total: int) -> None:
        """Begin the bar of stages, of which there are ``total``."""
        self._begin("stages", total, "stages")

    def stage(self, index: int, label: str) -> None:
        """Note that stage ``index``, counted from 0, begins."""
        self._move("stages", index, description=escape(label))

    def epoch(self, total_steps: int, label: str) -> None:
        """Begin the bar of steps for an epoch of ``total_steps``."""
        self._steps = 0
        self._begin("steps", total_steps, label)
        self._move("steps", 0)

    def step(self, loss: float | None = None, count: int = 1) -> None:
        """Note that ``count`` more steps of the epoch are done."""
        if self._live is not None and "steps" in self._tasks:
            self._steps += count
            self._move("steps", self._steps, note=None if loss is None else f"loss {score(loss, 'loss')}")

    def log(self, text: str) -> None:
        """Print a line, above the bars where there are any."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _begin(self, name: str, total: int, label: str) -> None:
        if self._live is None:
            return
        if name in self._tasks:
            self._live.remove_task(self._tasks[name])
        self._times_left[name] = TimeLeft(total)
        self._tasks[name] = self._live.add_task(escape(label), total=total, time_left=self._times_left[name], note="")

    def _move(self, name: str, completed: int, description: str | None = None, note: str | None = None) -> None:
        if self._live is not None and name in self._tasks:
            self._times_left[name].update(completed)
            self._live.update(self._tasks[name], completed=completed, description=description)
            if note is not None:
                self._live.update(self._tasks[name], note=note)
