"""The folder of a run: the one place that knows the names of the files in it, and what may be done with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import nn

from rbprune.errors import CheckpointError, ConfigError
from rbprune.graph import Plan
from rbprune.logging.events import read_events
from rbprune.report.html import write_report
from rbprune.settings.recipe import build_settings, read_toml, to_toml
from rbprune.settings.sections import Settings
from rbprune.utils.files import write_atomic
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
    def summary_file(self) -> Path:
        """What the run came to: errors, MACs, channels, cost."""
        return self.path / "summary.json"

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
        """Refuse a folder that holds something, with advice on what to do instead; nothing is written yet."""
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise ConfigError(f"{self.path} exists and is not empty; {advice}")

    # reading

    def read_settings(self) -> Settings:
        """The settings of the run."""
        if not self.is_run:
            raise ConfigError(
                f"{self.path} is no run folder (it has no config.toml); give one that 'rbprune prune' wrote"
            )
        return build_settings(read_toml(self.settings_file), where=str(self.settings_file), applied=True)

    def read_summary(self) -> dict[str, Any] | None:
        """The summary of the run, or None as long as there is none."""
        return json.loads(self.summary_file.read_text()) if self.summary_file.is_file() else None

    def read_events(self) -> list[dict[str, Any]]:
        """All events that were logged; lines torn by a crash are left out."""
        if not self.events_file.is_file():
            raise CheckpointError(
                f"{self.path} is no run folder (it has no events.jsonl); give the --out of 'rbprune prune'"
            )
        return read_events(self.events_file)

    # writing

    def begin(self, settings: Settings) -> None:
        """Create the folder and make it a run by writing the settings."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self.settings_file, to_toml(settings))

    def forget_events(self) -> None:
        """Delete the log of a run that has to start anew."""
        self.events_file.unlink(missing_ok=True)

    def forget_events_after(self, count: int) -> None:
        """Keep the first ``count`` events: what was logged after the checkpoint that knows of them happens again."""
        self.write_events(read_events(self.events_file)[:count])

    def write_events(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Replace the log."""
        write_atomic(self.events_file, "".join(json.dumps(event) + "\n" for event in events))

    def write_network(self, model: nn.Module, plan: Plan) -> None:
        """Write the weights of the pruned network, and the plan that makes room for them in a fresh instance."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_atomic(self.weights_file, save(state_tensors(model)))
        write_atomic(self.plan_file, plan.to_json())

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the report, then the summary as the sign that all is there.

        The checkpoints have served their purpose then, and go.
        """
        write_report(self.report_file, events=self.events_file, settings=self.settings_file)
        write_atomic(self.summary_file, json.dumps(summary, indent=2))
        shutil.rmtree(self.checkpoints, ignore_errors=True)
