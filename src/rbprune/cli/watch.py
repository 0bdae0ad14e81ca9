"""``rbprune watch``."""

from __future__ import annotations

import shlex
import sys
import time
from json import dumps
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rbprune.cli.options import Json
from rbprune.logging.console import stage_line
from rbprune.runs.report_page import rewrite_report
from rbprune.runs.watch import RunStatus, RunWatch
from rbprune.utils.names import printable
from rbprune.utils.numbers import as_number, change, decimal, duration, ratio, score

LAST_STAGES = 5
"""How many finished stages are shown."""
REFRESH = 15
"""Seconds after which a browser reads the page anew."""
COLOURS = {"good": "green", "bad": "bold red", "finished": "green", "dead": "bold red", "stopped": "yellow"}


def watch(
    folder: Path,
    *,
    html: Annotated[
        bool, Parameter(negative=(), help="also write report.html anew at every stage's end; browsers reload it")
    ] = False,
    every: Annotated[float, Parameter(help="seconds between two looks")] = 1.0,
    json: Json = False,
) -> None:
    """Follow a run in the terminal while it goes, until it ends; or say where it stands.

    It shows the stage, the time left, forecast against measured, and the last errors, and only reads: stopping it does
    not stop the run. It ends with the run, with exit code 0 if the run is finished and 1 if its process is gone or was
    stopped. With --json it prints where the run stands, once.

    Parameters
    ----------
    folder
        The run folder.
    """
    seen = RunWatch(folder)
    status = seen.status()
    if json:
        print(dumps(status.to_dict(), indent=2))
        return
    console, page = Console(), _Page(seen) if html else None
    status = _follow(seen, status, console, page, max(0.05, every))
    console.print(_ending(status), soft_wrap=True)
    if page is not None:
        console.print(f"page: {seen.run.report_file}", markup=False, highlight=False, soft_wrap=True)
    if status.state != "finished":
        sys.exit(1)


class _Page:
    """The page of the run, written anew whenever a stage is over, and once more when the run is."""

    def __init__(self, seen: RunWatch) -> None:
        self._seen, self._written = seen, -1

    def follow(self, status: RunStatus) -> None:
        """Write the page if there is something new on it; a search has none before its end."""
        news = len(status.record.stages)
        if self._seen.run.events_file.is_file() and (news != self._written or status.is_over):
            rewrite_report(self._seen.run, refresh=None if status.is_over else REFRESH)
            self._written = news


def _follow(seen: RunWatch, status: RunStatus, console: Console, page: _Page | None, every: float) -> RunStatus:
    """Look until the run is over; off a terminal a line is printed for every stage and change of state."""
    told, state = 0, None
    with Live(console=console, refresh_per_second=4, transient=True, auto_refresh=False) as live:
        while True:
            if page is not None:
                page.follow(status)
            if console.is_terminal:
                live.update(view(status), refresh=True)
            else:
                stages = status.record.stages
                told = 0 if len(stages) < told else told
                lines = [printable(stage_line(stage)) for stage in stages[told:]]
                lines += [headline(status)] if status.state != state else []
                told, state = len(stages), status.state
                for line in lines:
                    console.print(line, markup=False, highlight=False, soft_wrap=True)
            if status.is_over:
                return status
            time.sleep(every)
            status = seen.status()


def headline(status: RunStatus) -> str:
    """What runs, and in which state it is, in one line."""
    run, step = status.record, "" if status.step is None else f", step {status.step}"
    what = " by ".join(str(run.start[key]) for key in ("model", "method") if run.start.get(key)) or str(status.folder)
    return printable(f"{what}{step}: {status.state}{_process(status)}")


def _process(status: RunStatus) -> str:
    if status.holder is None or status.is_over:
        return ""
    process = status.holder.process
    return f" (process {process.pid}{'' if process.is_here else f' on {process.host}'})"


def view(status: RunStatus) -> Group:
    """Everything there is to see of a run that goes: bars, figures and the last stages."""
    told = status.to_dict()
    rows = Table.grid(padding=(0, 2))
    rows.add_row("where", _where(status))
    if status.stages:
        done = min(told["stages_done"], status.stages)
        text = Text(f"  {done} of {status.stages}")
        rows.add_row("stages", _beside(ProgressBar(total=status.stages, completed=done, width=30), text))
    rows.add_row("time", f"{duration(told['seconds'])} so far, {_left(status)}")
    rows.add_row("smaller", ", ".join(f"{c.label} {ratio(c.ratio)}" for c in status.record.costs.values()))
    metric = told["metric"]
    errors = f"dense {score(told['val_error_before'], metric)}, now {score(told['val_error'], metric)}"
    rows.add_row(f"validation {metric}", errors)
    rows.add_row("training loss", decimal(told["loss"]))
    if told["measured"] is not None:
        cut = f"forecast {change(told['forecast'])}, measured {change(told['measured'])} nats per example"
        rows.add_row("last cut", cut)
    for message in told["warnings"][-2:]:
        rows.add_row("warning", Text(printable(message)))
    last = [Text(f"  {printable(stage_line(stage))}", style="dim") for stage in status.record.stages[-LAST_STAGES:]]
    return Group(Text(headline(status), style="bold"), rows, *last)


def _beside(bar: ProgressBar, text: Text) -> Table:
    found = Table.grid()
    found.add_row(bar, text)
    return found


def _where(status: RunStatus) -> str:
    if not status.record.epochs:
        return "before the end of the first epoch"
    last = status.record.epochs[-1]
    stage, epochs = as_number(last.get("stage")), as_number(last.get("epochs"))
    of = "" if epochs is None else f" of {decimal(epochs)}"
    where = f"{status.phase}{'' if stage is None else f', stage {stage + 1:.0f}'}, epoch {last.get('epoch')}{of}"
    return printable(where)


def _left(status: RunStatus) -> str:
    left = status.to_dict()["seconds_left"]
    silent = "" if status.silent is None else f"; last event {duration(status.silent)} ago"
    return f"{'time left is not known yet' if left is None else f'about {duration(left)} left'}{silent}"


def _ending(status: RunStatus) -> Text:
    """The last line: the verdict, or what became of the run and how it goes on."""
    verdict, again = status.to_dict()["verdict"], f"rbprune resume {shlex.quote(str(status.folder))}"
    if status.state == "finished":
        if verdict is None:
            return Text("finished", style="green")
        told = printable(f"finished, {verdict['level']}: {verdict['text']}")
        return Text(told, style=COLOURS.get(verdict["level"], "yellow"))
    if status.state == "dead":
        assert status.holder is not None
        gone = f"process {status.holder.process.pid}, which worked on it, is gone"
        return Text(f"the run is not finished and {gone}; go on with: {again}", style=COLOURS["dead"])
    text = f"the run is not finished and no process works on it; go on with: {again}"
    return Text(text, style=COLOURS["stopped"])
