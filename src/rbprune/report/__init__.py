"""What a run tells people: its event log, the HTML page, the console and TensorBoard."""

from __future__ import annotations

from rbprune.logging.console import Progress, stage_line, summary_table
from rbprune.logging.events import EventLog, read_events
from rbprune.logging.tensorboard import TensorBoard
from rbprune.report.html import write_report

__all__ = ["EventLog", "Progress", "TensorBoard", "read_events", "stage_line", "summary_table", "write_report"]
