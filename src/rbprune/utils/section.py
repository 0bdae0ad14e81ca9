"""Tables of settings: validated when they are made, frozen, and closed to unknown keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from rbprune.errors import ConfigError, nearest
from rbprune.utils.names import shown


class Section(BaseModel):
    """Base of all settings. Made from keywords it raises ``ConfigError``, with every mistake named at once.

    >>> class Colours(Section):
    ...     red: float = 0.0
    >>> Colours(rad=1)
    Traceback (most recent call last):
    rbprune.errors.ConfigError: these settings cannot be used:
      rad: unknown key; did you mean 'red'?; known here: red
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explain(error, type(self), "these settings")) from error

    # pydantic must not take this for an __init__ of our own that it has to call for a section within a section: there
    # it collects the mistakes of all of them
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def changed(self, **changes: Any) -> Self:
        """The same settings but for these, validated anew."""
        return type(self)(**{**dict(self), **changes})


def explain(error: ValidationError, section: type[BaseModel], where: str) -> str:
    """Every mistake of some settings, a line each; unknown keys with the nearest known one."""
    return f"{where} cannot be used:\n" + "\n".join(_explain_one(each, section) for each in error.errors())


def first_mistake(error: ValidationError) -> str:
    """The first mistake in a file that pydantic has read, and where it is."""
    found = error.errors()[0]
    return f"{'.'.join(map(str, found['loc'])) or 'file'}: {found['msg']}"


def _explain_one(error: Any, section: type[BaseModel]) -> str:
    path = [str(part) for part in error["loc"]]
    name = ".".join(path)
    if error["type"] == "extra_forbidden":
        fields = _fields_at(section, path[:-1])
        return f"  {name}: unknown key{nearest(path[-1], fields)}; known here: {', '.join(sorted(fields))}"
    if error["type"] == "missing":
        return f"  {_explain_missing(section, path)}"
    if error["type"] == "model_type":
        return f"  {name} = {shown(error['input'])}: this is a section, not a value: write [{name}] and keys below it"
    message = error["msg"].removeprefix("Value error, ")
    if isinstance(error["input"], Mapping) and error["type"] == "value_error":
        # several keys together are to blame, and the message names them; the table would bury it
        return f"  {name}: {message}" if name else f"  {message}"
    return f"  {name or section.__name__} = {shown(error['input'])}: {message}"


def _explain_missing(section: type[BaseModel], path: list[str]) -> str:
    """That a section or a key is not there; the table in which it is missing is not shown."""
    name, inner = ".".join(path), _section_at(section, path)
    if inner is None:
        return f"{name} is missing; give it, there is no default"
    needed = [key for key, field in inner.model_fields.items() if field.is_required()]
    return f"there is no [{name}] section; it needs {', '.join(needed)}" if needed else f"there is no [{name}] section"


def _section_at(section: Any, path: list[str]) -> type[BaseModel] | None:
    """The section that a path leads to, or None where it leads to a plain value."""
    for part in path:
        annotation = section.model_fields[part].annotation
        options = get_args(annotation) if get_origin(annotation) else (annotation,)
        section = next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)
    return section


def _fields_at(section: Any, path: list[str]) -> list[str]:
    inner = _section_at(section, path)
    assert inner is not None, "only a section has unknown keys"
    return list(inner.model_fields)
