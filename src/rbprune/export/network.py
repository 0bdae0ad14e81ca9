"""What is exported: a pruned network with what is known of it, from a run folder or from an earlier export."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from rbprune import models
from rbprune.data.source import Data
from rbprune.errors import ConfigError, ExportError, UntrustedCodeError
from rbprune.export.config import CONFIG, read_config
from rbprune.graph import Plan
from rbprune.models.registry import is_users_code
from rbprune.runs.build import load_settings_data
from rbprune.runs.finished import load, open_run
from rbprune.runs.folder import RunFolder
from rbprune.runs.trust import ADD_TRUST, allow_code, check_code
from rbprune.settings.recipe import merge, parse_override
from rbprune.settings.sections import DataSettings
from rbprune.utils.imports import is_spec
from rbprune.utils.state import state_tensors

NAME_DATA = f"name it yourself with --set data.name=path/file.py:factory, or {ADD_TRUST}"
"""What lets a function make the data that only a folder names."""


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
    untrusted: UntrustedCodeError | None = None
    """Why the data is not loaded: a function makes it that nobody but the folder names."""
    half: bool = False
    """Whether kernels and matrices have only the digits of 16 bits, and are stored so."""

    def halved(self) -> PrunedNetwork:
        """The network with kernels and matrices rounded to 16 bits; vectors, such as statistics, stay as they are."""
        rounded = replace(self, model=copy.deepcopy(self.model), half=True)
        for name, tensor in rounded.model.state_dict().items():
            if _is_matrix(tensor):
                tensor.copy_(tensor.half())
                if not bool(tensor.isfinite().all()):
                    raise ExportError(f"{name!r} holds numbers beyond 65504, too large for 16 bits; leave out --half")
        return rounded

    def stored_tensors(self) -> dict[str, Tensor]:
        """The state of the network as files of safetensors hold it."""
        state = state_tensors(self.model)
        return {name: each.half() if self.half and _is_matrix(each) else each for name, each in state.items()}

    def load_data(self) -> Data:
        """The data that the network was trained on."""
        if self.untrusted is not None:
            raise self.untrusted
        if self.data is None:
            raise ConfigError("the folder does not say which data it is of; give it with --set data.name=NAME")
        return load_settings_data(self.data)


def _is_matrix(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dim() > 1


def open_network(
    folder: Path, model_name: str | None = None, overrides: Iterable[str] = (), *, trust: bool = False
) -> PrunedNetwork:
    """Open a finished run or an exported folder; ``overrides`` change the data, such as ``data.path=DIR``.

    Code that only the folder names may be a stranger's, and is run with ``trust`` alone.
    """
    changes = _data_changes(overrides)
    if RunFolder(folder).is_run:
        return _open_run(RunFolder(folder), model_name, changes, trust)
    return _open_exported(folder, model_name, changes, trust)


def _open_run(run: RunFolder, model_name: str | None, changes: dict[str, Any], trust: bool) -> PrunedNetwork:
    found = open_run(run.path, model_name, trust=trust)
    facts, data = found.settings.model, found.settings.data.model_dump(exclude_none=True)
    named = "name" not in changes
    return PrunedNetwork(
        found.pruned,
        found.plan,
        found.model_name,
        facts.classes,
        tuple(facts.input_shape) if facts.input_shape else None,
        found.summary or {},
        DataSettings(**{**data, **changes}),
        untrusted=_refusal(
            check_code, run, found.settings, trust=trust, model=False, data=named, tracker=False, remedy=NAME_DATA
        ),
    )


def _open_exported(folder: Path, model_name: str | None, changes: dict[str, Any], trust: bool) -> PrunedNetwork:
    """A folder that ``rbprune export`` wrote; it has no seal, so that all code that it names is a stranger's."""
    config = read_config(folder / CONFIG)
    name, maker = model_name or config.model, str(config.data.get("name"))
    if model_name is None and is_users_code(name):
        allow_code(folder, {"model": name}, trust=trust, remedy=f"give it as MODEL, or {ADD_TRUST}")
    code = {"data.name": maker} if is_spec(maker) and "name" not in changes else {}
    dense = models.build(name, classes=config.classes)
    return PrunedNetwork(
        model=load(folder, copy.deepcopy(dense)),
        plan=Plan.from_json(RunFolder(folder).plan_file.read_text()),
        name=name,
        classes=config.classes,
        input_shape=tuple(config.input_shape) if config.input_shape else None,
        summary=config.summary,
        data=DataSettings(**{**config.data, **changes}) if config.data or "name" in changes else None,
        license=config.license,
        half=any(file.get("half") for file in config.files.values()),
        untrusted=_refusal(allow_code, folder, code, trust=trust, remedy=NAME_DATA) if code else None,
    )


def _refusal(check: Callable[..., None], *what: Any, **how: Any) -> UntrustedCodeError | None:
    """What a check of code has against it: without its data a network can still be written."""
    try:
        check(*what, **how)
    except UntrustedCodeError as error:
        return error
    return None


def _data_changes(overrides: Iterable[str]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for override in overrides:
        changes = merge(changes, parse_override(override))
    others = sorted(set(changes) - {"data"})
    if others or not isinstance(changes.get("data", {}), Mapping):
        named = ", ".join(others) or "data"
        raise ConfigError(f"an export changes only settings of the data, such as data.path=DIR; this sets {named}")
    return dict(changes.get("data", {}))
