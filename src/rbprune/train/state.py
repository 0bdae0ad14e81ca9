"""What a run reads, where it writes, and what it knows about itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from torch import nn

from rbprune.data.source import Skipped
from rbprune.logging.journal import Journal
from rbprune.logging.trackers import Tracker
from rbprune.train.phase import Kind
from rbprune.train.stream import Stream


@dataclass(frozen=True)
class RunData:
    """The data of a run; only ``train`` and ``val`` are ever looked at for a choice."""

    train: Callable[[int], Stream]
    val: Stream | None = None
    test: Stream | None = None
    skipped: Skipped | None = None
    """Corrupt examples that were left out and not yet told."""

    def tell_skipped(self, tell: Callable[[str], None]) -> None:
        """Say which corrupt examples were left out since the last time, if any."""
        message = None if self.skipped is None else self.skipped.tell()
        if message is not None:
            tell(message)


Timer = Callable[[nn.Module, Callable[[str], None]], dict[str, Any] | None]
"""Takes the pruned network and a function that warns; gives what ``summary.json`` says of its measured latency, or None
where it could not be measured."""


class RunFiles(Protocol):
    """Where a run writes while it goes; ``runs.RunFolder`` knows all of its files."""

    @property
    def events_file(self) -> Path:
        """The log."""

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard's files."""

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""


@dataclass(frozen=True)
class RunTrackers:
    """Who listens to a run: trackers that are closed at its end, and those that are lent to it."""

    own: Sequence[Tracker] = ()
    lent: Sequence[Tracker] = ()


def open_journal(
    console: Console, files: RunFiles | None, *, main: bool, trackers: RunTrackers | None = None
) -> Journal:
    """The log of a run; only the main process of several writes, draws and tells trackers."""
    files = files if main else None
    events, board = (None, None) if files is None else (files.events_file, files.tensorboard)
    heard = trackers if main and trackers is not None else RunTrackers()
    return Journal(
        console,
        events=events,
        tensorboard=board,
        silent=not main,
        trackers=heard.own,
        lent_trackers=heard.lent,
    )


@dataclass
class RunState:
    """What a run knows about itself between two steps, as plain values."""

    phase: int = 0
    error_before: float | None = None
    top5_before: float | None = None
    cost: dict[Kind, float] = field(default_factory=lambda: {"pretrain": 0.0, "prune": 0.0, "finetune": 0.0})
    seconds: float = 0.0
    undecided: dict[str, float] = field(default_factory=dict)
    guarded: list[str] = field(default_factory=list)
    val_error: float | None = None
    finetune_epochs: float | None = None
    metric: str = "error"
    started: bool = False
    dense_loss: float | None = None
    """The training loss of the dense network, in nats per example."""
    explained: float | None = None
    """What the dense network explains, in nats per example."""
    cuts: list[dict[str, float | int | bool | None]] = field(default_factory=list)
    """Of each cut so far what it did to the loss (the fields of ``CutReport``), and whether its stage had settled."""
    error_sums: list[float] | None = None
    """What the errors of the dense network are worth, for losses of errors (``Location.sums``)."""
    skipped: list[str] = field(default_factory=list)
    val_error_before: float | None = None
    """The validation error of the network that pruning started from."""
    mistakes_before: dict[str, Any] | None = None
    """Which validation examples that network got wrong (the fields of ``Mistakes``); None for other metrics."""
    mistakes: dict[str, Any] | None = None
    """The same for the network as it was validated last."""
    val_lowest: dict[str, float] | None = None
    """The lowest validation error (``val_error``) since the last cut, and after which ``epoch`` of the recovery it was;
    0 is before it."""

    def validated(self, error: float | None, *, recovery_epoch: int = 0) -> None:
        """Note the validation error of the network as it is, after so many epochs of the recovery; None if unknown."""
        self.val_error = error
        if error is None:
            return
        if not recovery_epoch or self.val_lowest is None or error < self.val_lowest["val_error"]:
            self.val_lowest = {"val_error": error, "epoch": recovery_epoch}

    def of_dense(self) -> dict[str, float | None]:
        """What is known of the dense network, as the log tells it."""
        return {
            "error": self.error_before,
            "val_error": self.val_error_before,
            "loss": self.dense_loss,
            "explained": self.explained,
        }
