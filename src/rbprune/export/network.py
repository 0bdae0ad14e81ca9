"""What is exported: a pruned network with what is known of it, from a run folder or from an earlier export."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from rbprune import models
from rbprune.errors import ConfigError, ModelError
from rbprune.graph import Plan
from rbprune.models.registry import is_users_code
from rbprune.runs.finished import load, open_run
from rbprune.runs.folder import RunFolder
from rbprune.settings.recipe import merge, parse_override
from rbprune.settings.sections import DataSettings
from rbprune.utils.imports import is_spec

CONFIG = "config.json"
"""What an exported folder says of itself, under the name that the Hugging Face hub looks for."""


@dataclass(frozen=True)
class PrunedNetwork:
    """A pruned network, the plan that leads to it from a fresh instance, and what its run knew of it."""

    model: nn.Module
    plan: Plan
    name: str
    """How ``rbprune.models`` builds it, or the name of its class."""
    classes: int | None = None
    input_shape: tuple[int, ...] | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)
    data: DataSettings | None = None
    license: str | None = None
    """Of the weights, by its name on the Hugging Face hub, such as ``apache-2.0``; None where nobody chose one."""


def open_network(folder: Path, model_name: str | None = None, overrides: Iterable[str] = ()) -> PrunedNetwork:
    """Open a finished run or an exported folder; ``overrides`` change the data, such as ``data.path=DIR``."""
    changes = _data_changes(overrides)
    if RunFolder(folder).is_run:
        run = open_run(folder, model_name)
        facts, data = run.settings.model, run.settings.data.model_dump(exclude_none=True)
        shape = tuple(facts.input_shape) if facts.input_shape else None
        return PrunedNetwork(
            run.pruned,
            run.plan,
            run.model_name,
            facts.classes,
            shape,
            run.summary or {},
            DataSettings(**{**data, **changes}),
        )
    return _open_exported(folder, model_name, changes)


def _open_exported(folder: Path, model_name: str | None, changes: dict[str, Any]) -> PrunedNetwork:
    """A folder that ``rbprune export`` wrote. Code that only the folder names is not run: it may be a stranger's."""
    file = folder / CONFIG
    config = _read_config(file)
    name = model_name or str(config["model"])
    if model_name is None and is_users_code(name):
        raise ModelError(f"{file} names the model {name!r}, which is code; give it as MODEL if you trust it")
    dense = models.build(name, classes=config.get("classes"))
    data = dict(config.get("data") or {})
    if is_spec(str(data.get("name"))) and "name" not in changes:
        data = {}  # code again
    shape = config.get("input_shape")
    return PrunedNetwork(
        model=load(folder, copy.deepcopy(dense)),
        plan=Plan.from_json(RunFolder(folder).plan_file.read_text()),
        name=name,
        classes=config.get("classes"),
        input_shape=tuple(shape) if shape else None,
        summary=config.get("summary") or {},
        data=DataSettings(**{**data, **changes}) if data or "name" in changes else None,
        license=config.get("license"),
    )


def _read_config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise ConfigError(
            f"{file.parent} is neither a run (it has no config.toml) nor an exported folder (it has no {CONFIG}); "
            "give a folder that 'rbprune prune' or 'rbprune export' wrote"
        )
    try:
        config = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file} is no JSON: {error}; export anew") from error
    if not (isinstance(config, dict) and config.get("library_name") == "rbprune" and config.get("model")):
        raise ConfigError(f"{file} was not written by rbprune; give a folder that 'rbprune export' wrote")
    return config


def _data_changes(overrides: Iterable[str]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for override in overrides:
        changes = merge(changes, parse_override(override))
    others = sorted(set(changes) - {"data"})
    if others or not isinstance(changes.get("data", {}), Mapping):
        named = ", ".join(others) or "data"
        raise ConfigError(f"an export changes only settings of the data, such as data.path=DIR; this sets {named}")
    return dict(changes.get("data", {}))
