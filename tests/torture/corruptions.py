"""Runs whose files are damaged: single bits flipped, ends cut off, blocks zeroed; is it said?"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rbprune.errors import RbpruneError
from rbprune.runs.finished import open_run
from rbprune.runs.folder import RunFolder
from rbprune.runs.resume import changed_settings
from rbprune.settings.sections import Settings
from rbprune.train.checkpoint import load_checkpoint

KINDS = ("bit", "truncation", "zeros")


@dataclass
class CorruptionFigures:
    """How many damages were said, by file, and which were not."""

    said: Counter[str] = field(default_factory=Counter)
    harmless: int = 0
    """Damages that change nothing: a number that is written in another way, a missing end of the last line."""
    silent: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    """Errors that are not ours, which say too little to whoever meets them."""

    def line(self) -> str:
        files = ", ".join(f"{name} {count}" for name, count in sorted(self.said.items()))
        said, silent, foreign = self.said.total(), len(self.silent), len(self.foreign)
        return (
            f"{said + self.harmless + silent + foreign} corruptions: {silent} silent, {foreign} foreign errors, "
            f"{self.harmless} without effect, {said} said ({files})"
        )


def damaged(content: bytes, kind: str, chance: random.Random) -> bytes:
    """The content with one damage, which is not the same content."""
    changed = bytearray(content)
    match kind:
        case "bit":
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        case "truncation":
            del changed[chance.randrange(len(changed)) :]
        case "zeros":
            begin = chance.randrange(len(changed))
            end = min(len(changed), begin + chance.choice((1, 16, 512, 4096)))
            changed[begin:end] = bytes(end - begin)
    return bytes(changed) if changed != content else damaged(content, "bit", chance)


def said_of_finished(folder: Path) -> bool:
    """Whether any of the readers of a finished run says that something is wrong; each of its files has one."""
    run = RunFolder(folder)
    told = run.check_files()
    open_run(folder)
    run.read_events()
    return bool(told)


def said_of_checkpoint(folder: Path) -> bool:
    """Whether going on from the checkpoints of a run would say that the newest is damaged."""
    return bool(load_checkpoint(RunFolder(folder).checkpoints)[2])


def said_of_settings(folder: Path, settings: Settings) -> bool | None:
    """Whether going on with a run would say that its settings are others; None where they are the same."""
    run = RunFolder(folder)
    said = bool(changed_settings(run, load_checkpoint(run.checkpoints)[0].values["events"]))
    return None if run.read_settings() == settings and not said else said


def torture_by_corruptions(
    count: int, files: list[Path], is_said: Callable[[], bool | None], chance: random.Random, figures: CorruptionFigures
) -> None:
    """Damage so often one of the files, each about as often, and count whether it is said; the files are put back."""
    for number in range(count):
        file = files[number % len(files)]
        content, kind = file.read_bytes(), chance.choice(KINDS)
        name = "TensorBoard's" if file.parent.name == "tb" else file.name
        file.write_bytes(damaged(content, kind, chance))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                said = is_said()
        except (RbpruneError, UserWarning):
            said = True
        except Exception as error:
            figures.foreign.append(f"{name}, {kind}: {error!r}")
            continue
        finally:
            file.write_bytes(content)
        if said is None:
            figures.harmless += 1
        elif said:
            figures.said[name] += 1
        else:
            figures.silent.append(f"{name}, {kind}")
