"""Recipes: settings in TOML, their presets, and ``key=value`` overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from rbprune.errors import ConfigError, nearest
from rbprune.methods.registry import METHODS
from rbprune.settings.sections import PruneSettings, Settings
from rbprune.utils.names import shown
from rbprune.utils.plain_file import read_plain
from rbprune.utils.section import explain

_LONGEST = 1 << 20
"""Bytes of a TOML file at most: a recipe has a few thousand."""


def shipped() -> list[str]:
    """Names of the recipes that come with the package."""
    return sorted(
        f.name.removesuffix(".toml")
        for f in resources.files("rbprune.settings.recipes").iterdir()
        if f.name.endswith(".toml")
    )


def load_recipe(recipe: str, overrides: Iterable[str] = ()) -> Settings:
    """A shipped recipe or a TOML file, with ``key=value`` overrides applied after its preset."""
    return build_settings(_read(recipe), overrides, where=f"recipe {recipe!r}")


def build_settings(
    raw: dict[str, Any], overrides: Iterable[str] = (), *, where: str = "the settings", applied: bool = False
) -> Settings:
    """Validated settings from plain values; every mistake is named, all at once.

    A table ``methods.NAME`` holds settings for one method only; a preset is laid over it, and overrides (of
    ``methods.NAME`` as well) over that. ``applied``: these are settings as ``to_toml`` wrote them, with the preset in
    them already.
    """
    changes = _changes(overrides)
    presets, tables = _named(raw, "presets", where), _named(raw, "methods", where)
    changed = _named(changes, "methods", "--set")
    for name, told in [*dict.fromkeys(tables, where).items(), *dict.fromkeys(changed, "--set").items()]:
        if name not in METHODS:  # they would never be used, and nobody would notice
            known = ", ".join(METHODS)
            raise ConfigError(
                f"{told}: methods.{name}: there is no such method{nearest(name, METHODS)}; known are {known}"
            )
    base = {key: value for key, value in raw.items() if key not in ("presets", "methods")}
    changes = {key: value for key, value in changes.items() if key != "methods"}
    chosen = None if applied else changes.get("preset", base.get("preset"))
    if chosen is not None and str(chosen) not in presets:
        known = ", ".join(presets) or "none (a run's own config.toml has its preset applied: add --set preset=none)"
        raise ConfigError(f"{where} has no preset {shown(chosen)}{nearest(str(chosen), presets)}; it has: {known}")
    preset = {} if chosen is None else presets[str(chosen)]
    method = _method(merge(merge(base, preset), changes))
    layered = merge(merge(base, tables.get(method, {})), preset)
    settings = _validated(merge(merge(layered, changed.get(method, {})), changes), where)
    for kind, name, table in [
        *(("methods", name, table) for name, table in [*tables.items(), *changed.items()]),
        *(("presets", name, table) for name, table in presets.items()),
    ]:
        _validated(merge(merge(base, table), changes), f"{kind}.{name} of {where}")
    return settings


def _changes(overrides: Iterable[str]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for override in overrides:
        changes = merge(changes, parse_override(override), whole=())
    for key in ("model", "data", "pretrain", "prune", "finetune", "runtime"):
        dropped = key == "pretrain" and changes.get(key) is None
        if key in changes and not dropped and not isinstance(changes[key], Mapping):
            raise ConfigError(f"{key!r} is a section of settings; set one of them, such as {key}.NAME=VALUE")
    return changes


def _named(values: Mapping[str, Any], key: str, where: str) -> dict[str, dict[str, Any]]:
    """Tables of settings, each with a name of its own."""
    tables = values.get(key, {})
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        raise ConfigError(f"{where}: {key} holds tables such as [{key}.NAME.prune]; this is {shown(tables)}")
    return dict(tables)


def _method(settings: Mapping[str, Any]) -> str:
    prune = settings.get("prune")
    default = PruneSettings.model_fields["method"].default
    return str(prune.get("method", default) if isinstance(prune, Mapping) else default)


def _validated(settings: Mapping[str, Any], where: str) -> Settings:
    try:
        return Settings.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(explain(error, Settings, where)) from error


def _read(recipe: str) -> dict[str, Any]:
    if recipe in shipped():
        return _parse(resources.files("rbprune.settings.recipes").joinpath(f"{recipe}.toml").read_text(), recipe)
    if recipe.endswith(".toml") and Path(recipe).is_file():
        return read_toml(Path(recipe))
    hint = nearest(recipe, shipped())
    raise ConfigError(f"there is no recipe {recipe!r}{hint}; shipped are {', '.join(shipped())}; or give a .toml file")


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file."""
    try:
        return _parse(read_plain(path, ConfigError, most=_LONGEST).decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8, as TOML must be: {error}") from error


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        values = tomllib.loads(text)
        _check_integers(values)
        return values
    except (ValueError, RecursionError) as error:  # of which TOMLDecodeError is one
        raise ConfigError(f"{where} is not valid TOML: {error}") from error


def _check_integers(values: Any) -> None:
    """TOML's integers have 64 bits, and Python's reader takes longer ones, which later cannot even be printed."""
    if isinstance(values, int) and values.bit_length() > 63:
        raise ValueError(f"an integer of {values.bit_length()} bits, where TOML has 64 with the sign")
    inside = values.values() if isinstance(values, dict) else values if isinstance(values, list) else ()
    for value in inside:
        _check_integers(value)


def parse_override(text: str) -> dict[str, Any]:
    """``a.b=value`` as nested tables; the value is TOML, or else a plain string, and ``none`` takes a setting away.

    >>> parse_override("prune.price={nats=20}")
    {'prune': {'price': {'nats': 20}}}
    >>> parse_override("model.weights=none")
    {'model': {'weights': None}}
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes key=value, such as finetune.epochs=3; this is {text!r}")
    parsed: Any
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        parsed = None if value.strip() == "none" else value.strip()
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return parsed


def merge(base: Mapping[str, Any], changes: Mapping[str, Any], *, whole: Sequence[str] = ("price",)) -> dict[str, Any]:
    """Tables are merged, except those named in ``whole``; anything else replaces what was there.

    A price is one setting, whatever it is made of: a new one leaves nothing of the old.

    >>> merge({"a": {"price": {"nats": 20}, "b": 1}}, {"a": {"price": {"nats_per_mmac": 5}}})
    {'a': {'price': {'nats_per_mmac': 5}, 'b': 1}}
    """
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping) and key not in whole
        result[key] = merge(old, value, whole=whole) if both else value  # type: ignore[arg-type]
    return result


def to_toml(settings: Settings) -> str:
    """The settings as TOML that ``build_settings`` reads back to the same settings, whatever characters they hold."""
    return tomli_w.dumps(settings.model_dump(exclude_none=True))
