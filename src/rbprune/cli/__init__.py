"""The command line: one file per verb."""

from rbprune.cli.app import main

__all__ = ["main"]
