"""The HTML pages: of a run, and of a comparison of runs."""

from __future__ import annotations

from rbprune.report.html import write_report

__all__ = ["write_report"]
