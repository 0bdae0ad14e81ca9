"""What an exported folder says of itself: ``config.json``, which may come from a stranger and is read accordingly."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field

from rbprune.errors import ConfigError
from rbprune.settings.sections import Classes, InputShape
from rbprune.utils.plain_file import read_table
from rbprune.utils.section import Section

CONFIG = "config.json"
"""The name that the Hugging Face hub looks for."""
_LONGEST = 1 << 20


class ExportedConfig(Section):
    """The fields that are read again; what a later version or a person adds is let be."""

    model_config = ConfigDict(extra="ignore")

    library_name: Literal["rbprune"]
    model: str = Field(min_length=1)
    classes: Classes | None = None
    input_shape: InputShape | None = None
    license: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    summary: dict[str, Any] = Field(default_factory=dict)
    inputs: list[str] = Field(default_factory=list)
    outputs: list[str] = Field(default_factory=list)
    keywords: list[str] = Field(default_factory=list)
    files: dict[str, dict[str, Any]] = Field(default_factory=dict)


def read_config(file: Path) -> ExportedConfig:
    """Read what ``Bundle`` wrote; anything else is refused by the name of the file."""
    if not file.exists():
        raise ConfigError(
            f"{file.parent} is neither a run (it has no config.toml) nor an exported folder (it has no {CONFIG}); "
            "give a folder that 'rbprune prune' or 'rbprune export' wrote"
        )
    found = read_table(file, ConfigError, most=_LONGEST)
    if found.get("library_name") != "rbprune":
        raise ConfigError(f"{file} was not written by rbprune; give a folder that 'rbprune export' wrote")
    try:
        return ExportedConfig(**{key: value for key, value in found.items() if value is not None})
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}; export anew") from error
