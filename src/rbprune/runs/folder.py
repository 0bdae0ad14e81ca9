"""The folder of a run: the one place that knows the names of the files in it, and what may be done with them."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import nn

from rbprune.errors import CheckpointError, ConfigError, DamagedError
from rbprune.graph import Plan
from rbprune.logging.events import scan_events
from rbprune.report.html import write_report
from rbprune.settings.recipe import build_settings, read_toml, to_toml
from rbprune.settings.sections import Settings
from rbprune.train.checkpoint import WRITING
from rbprune.train.evaluate import Mistakes
from rbprune.utils.checksums import read_sums, sha256, sha256_file, sums_text
from rbprune.utils.files import is_dead_temporary, temporaries, write_atomic, write_errors
from rbprune.utils.state import state_tensors


class RunFolder:
    """A folder that holds a run, or is going to.

    Its settings come first: a folder that has them is a run. Its summary comes last: a run that has one is finished.

    >>> RunFolder("runs/demo").weights_file.as_posix(), RunFolder("nowhere").is_run
    ('runs/demo/model.safetensors', False)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        return str(self.path)

    # the files

    @property
    def settings_file(self) -> Path:
        """The validated settings with every default written out, in TOML."""
        return self.path / "config.toml"

    @property
    def seal_file(self) -> Path:
        """The sign that the user of this machine named the code of the settings; only where they name code."""
        return self.path / "seal.json"

    @property
    def events_file(self) -> Path:
        """The log: one JSON object in each line."""
        return self.path / "events.jsonl"

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard's event files."""
        return self.path / "tb"

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints, which is gone once the run is finished."""
        return self.path / "checkpoints"

    @property
    def steps(self) -> Path:
        """The folder of the runs that a search with ``prune.max_error_rise`` consists of; other runs have none."""
        return self.path / "steps"

    @property
    def plan_file(self) -> Path:
        """Which channels were kept, as ``rbprune.Plan`` reads and writes it."""
        return self.path / "plan.json"

    @property
    def weights_file(self) -> Path:
        """The state dict of the pruned network."""
        return self.path / "model.safetensors"

    @property
    def report_file(self) -> Path:
        """The page for people."""
        return self.path / "report.html"

    @property
    def mistakes_file(self) -> Path:
        """Which validation examples the networks before and after the run got wrong; only of classifiers."""
        return self.path / "mistakes.json"

    @property
    def summary_file(self) -> Path:
        """What the run came to: errors, MACs, channels, cost."""
        return self.path / "summary.json"

    @property
    def sums_file(self) -> Path:
        """The SHA-256 of every file that a finished run has, as ``sha256sum -c`` reads it."""
        return self.path / "SHA256SUMS"

    @property
    def lock_file(self) -> Path:
        """Which process works on the run, as long as one does."""
        return self.path / "run.lock"

    # what state the run is in

    @property
    def is_run(self) -> bool:
        """Whether a run was ever started here."""
        return self.settings_file.is_file()

    @property
    def is_finished(self) -> bool:
        """Whether the run that was started here is complete."""
        return self.is_run and self.summary_file.is_file()

    @property
    def has_checkpoint(self) -> bool:
        """Whether a checkpoint was ever completed; it may have been damaged since."""
        return any(self.checkpoints.glob("ckpt-*"))

    def check_empty(self, advice: str) -> None:
        """Refuse a folder that holds something, with advice on what to do instead; nothing is written yet.

        What a process leaves that is killed before its settings are written, its lock and half a file, is nothing.
        """
        nothing = {self.lock_file, *temporaries(self.path)}
        if self.path.exists() and (not self.path.is_dir() or not nothing.issuperset(self.path.iterdir())):
            raise ConfigError(f"{self.path} exists and is not empty; {advice}")

    def leftovers(self) -> list[Path]:
        """What is of no use any more: half-written files of dead processes, checkpoints of a finished run."""
        found = [path for path in temporaries(self.path) if is_dead_temporary(path)]
        checkpoints = self.checkpoints if self.is_finished else self.checkpoints / WRITING
        return [*found, *([checkpoints] if checkpoints.exists() else [])]

    def remove_leftovers(self) -> None:
        """Remove them; only the process that holds the lock may do so."""
        for path in self.leftovers():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    # reading

    def read_settings(self) -> Settings:
        """The settings of the run."""
        if not self.is_run:
            raise ConfigError(
                f"{self.path} is no run folder (it has no config.toml); give one that 'rbprune prune' wrote"
            )
        self.read(self.settings_file)
        return build_settings(read_toml(self.settings_file), where=str(self.settings_file), applied=True)

    def read_summary(self) -> dict[str, Any] | None:
        """The summary of the run, or None as long as there is none."""
        if not self.summary_file.is_file():
            return None
        return self._read_table(self.summary_file)

    def _read_table(self, file: Path) -> dict[str, Any]:
        try:
            found = json.loads(self.read(file))
        except (ValueError, RecursionError) as error:
            raise _damaged(file, f"it is no JSON ({error})") from error
        if not isinstance(found, dict):
            raise _damaged(file, f"it is no table of results but a {type(found).__name__}")
        return found

    def read_events(self) -> list[dict[str, Any]]:
        """All events that were logged; a line torn by a crash is left out, other damage is told."""
        if not self.events_file.is_file():
            raise CheckpointError(
                f"{self.path} is no run folder (it has no events.jsonl); give the --out of 'rbprune prune'"
            )
        self.read(self.events_file)
        found = scan_events(self.events_file)
        if found.damaged > found.torn:
            count = found.damaged - found.torn
            what = "1 line is" if count == 1 else f"{count} lines are"
            warnings.warn(f"{self.events_file} is damaged: {what} left out; copy it anew", stacklevel=2)
        return found.events

    def read(self, file: Path) -> bytes:
        """The content of a file of the run: of a finished run it is what the run wrote, or a DamagedError."""
        content = file.read_bytes()
        sums = self.read_sums()
        if sums is not None and sums.get(file.name) != sha256(content):
            raise _damaged(file, f"its SHA-256 is not the one in {self.sums_file.name}")
        return content

    def read_sums(self) -> dict[str, str] | None:
        """The sums of the run's files by name; None of an unfinished run, and of one made before there were sums.

        They are written just before the summary; a run that is killed in between, and resumed, drops them.
        """
        if not self.sums_file.is_file():
            return None
        try:
            return read_sums(self.sums_file.read_bytes())
        except ValueError as error:
            raise _damaged(self.sums_file, str(error)) from error

    def check_files(self) -> list[str]:
        """Check every file of a finished run: a DamagedError for what its network and its figures rest on, a sentence
        where some of that is not there at all, and for each page or curve that is not what the run wrote."""
        sums, told = self.read_sums() or {}, []
        for name, wanted in sums.items():
            file = self.path / name
            vital = file != self.report_file and self.tensorboard not in file.parents
            if not file.is_file():
                told += [f"{file} is gone, or no file any more: the run wrote one; copy it anew"] if vital else []
            elif sha256_file(file) != wanted:
                if vital:
                    raise _damaged(file, f"its SHA-256 is not the one in {self.sums_file.name}")
                told.append(f"{file} is not what the run wrote: it was changed or damaged since")
        return told

    def read_mistakes(self) -> dict[str, dict[str, Any]]:
        """Which validation examples the network got wrong, ``before`` and ``after`` the run, as far as it is known."""
        found = self._read_table(self.mistakes_file) if self.mistakes_file.is_file() else {}
        if wrong := [when for when, fields in found.items() if not Mistakes.is_valid(fields)]:
            raise _damaged(self.mistakes_file, f"{wrong[0]!r} lists no mistakes")
        return found

    # writing

    def begin(self, settings: Settings) -> None:
        """Create the folder and make it a run by writing the settings."""
        with write_errors(self.path, *self.path.parents):
            self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self.settings_file, to_toml(settings))

    def forget_sums(self) -> None:
        """Delete the sums of a run that was killed before its summary was written, and goes on.

        Where the network of a finished run is there and only its summary is not, it is not run over.
        """
        if self.sums_file.is_file() and self.weights_file.is_file() and not self.has_checkpoint:
            raise DamagedError(
                f"{self.summary_file} is missing from a finished run; copy it anew, or, to do without this run, delete "
                f"{self.sums_file} and start it over"
            )
        self.sums_file.unlink(missing_ok=True)

    def forget_events(self) -> None:
        """Delete the log of a run that has to start anew."""
        self.events_file.unlink(missing_ok=True)

    def write_events(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Replace the log."""
        write_atomic(self.events_file, "".join(json.dumps(event) + "\n" for event in events))

    def write_network(self, model: nn.Module, plan: Plan) -> None:
        """Write the weights of the pruned network, and the plan that makes room for them in a fresh instance."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self.weights_file, save(state_tensors(model)))
        write_atomic(self.plan_file, plan.to_json())

    def write_mistakes(self, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> None:
        """Write which validation examples were wrong before and after the run (the fields of ``train.Mistakes``), where
        somebody knows."""
        known = {name: value for name, value in (("before", before), ("after", after)) if value is not None}
        if known:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomic(self.mistakes_file, json.dumps(known))

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the report, the sums of all files, then the summary as the sign that all is there.

        The checkpoints have served their purpose then, and go.
        """
        write_report(self.report_file, events=self.events_file, settings=self.settings_file)
        content = json.dumps(summary, indent=2)
        own = [self.settings_file, self.events_file, self.plan_file, self.weights_file]
        own += [self.mistakes_file, self.report_file]
        files = [file for file in (*own, *sorted(self.tensorboard.rglob("*"))) if file.is_file()]
        sums = {file.relative_to(self.path).as_posix(): sha256_file(file) for file in files}
        write_atomic(self.sums_file, sums_text({**sums, self.summary_file.name: sha256(content.encode())}))
        write_atomic(self.summary_file, content)
        shutil.rmtree(self.checkpoints, ignore_errors=True)


def _damaged(file: Path, why: str) -> DamagedError:
    return DamagedError(f"{file} cannot be read: it is damaged, {why}; copy it anew, or repeat the run")
