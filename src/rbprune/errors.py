"""One family of errors: each says what was wrong, where, the offending value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RbpruneError(Exception):
    """Base of everything that rbprune raises on purpose."""


class ConfigError(RbpruneError):
    """A recipe, a flag or an argument has a value that cannot be used."""


class OutOfReachError(ConfigError):
    """A target asks for a smaller network than may be cut; the message says what can be reached."""


class DataError(RbpruneError):
    """Data is missing, damaged, empty or contains what the loss cannot take."""


class CorruptError(DataError):
    """One example cannot be decoded; with ``data.corrupt = "skip"`` it is left out instead.

    >>> print(CorruptError("a.jpg", "image file is truncated"))
    a.jpg: not a readable image: image file is truncated; replace it, or set data.corrupt = "skip"
    """

    def __init__(self, where: str, why: str) -> None:
        super().__init__(where, why)  # both, so that it travels between processes
        self.where, self.why = where, why

    def __str__(self) -> str:
        return f'{self.where}: not a readable image: {self.why}; replace it, or set data.corrupt = "skip"'


class ModelError(RbpruneError):
    """A model cannot be built, run on its example, or loaded."""


class UnprunableError(RbpruneError):
    """A channel cannot be removed exactly, and is therefore not removed at all."""


class CheckpointError(RbpruneError):
    """A run folder or checkpoint cannot be used."""


class RestoreError(CheckpointError):
    """A checkpoint is whole, and yet this run cannot go on from it; one before it may do."""


class DamagedError(CheckpointError, ModelError):
    """A file of a run is not what the run wrote."""


class WriteError(RbpruneError, OSError):
    """A file cannot be written: the disk is full, its folder is gone or may not be written to."""

    def __str__(self) -> str:
        return str(self.args[0])


class UntrustedCodeError(RbpruneError):
    """A run folder names code to be run, and nobody who may has said that it can be trusted."""


class FailedRunsError(RbpruneError):
    """Some runs of several failed; the others are whole."""


class ExportError(RbpruneError):
    """A network cannot be written in a format, or the file does not compute what the network computes."""


class LoopError(RbpruneError):
    """A training loop left out a call that a stage depends on."""


class ProcessesError(RbpruneError):
    """Processes that train one network together do not have the same network."""


class NumericalError(RbpruneError):
    """A loss or a rate stopped being a finite number."""


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint such as ``; did you mean 'epochs'?``, or nothing when no known word is near.

    >>> nearest("epocs", ["epochs", "seed"])
    "; did you mean 'epochs'?"
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def first_line(error: Exception) -> str:
    """What an error of somebody else says, in one line; its kind where it says nothing of its own.

    >>> first_line(ValueError("no\\nWhile executing f")), first_line(AssertionError("\\n\\nWhile executing f"))
    ('no', 'AssertionError')
    """
    said = [line for line in str(error).splitlines() if line.strip()]
    return said[0] if said and not said[0].startswith("While executing") else type(error).__name__
