"""Importing packages that only some users have: the extras of rbprune."""

from __future__ import annotations

import contextlib
import importlib
from importlib.util import find_spec
from types import ModuleType

from rbprune.errors import ConfigError, RbpruneError
from rbprune.utils.torchvision import import_torchvision


def import_extra(*names: str, extra: str, error: type[RbpruneError] = ConfigError) -> ModuleType:
    """The first of some modules that is installed, or an error that says how to install the package they belong to.

    They may import torchvision, which is therefore imported before them, where there is one.

    >>> import_extra("json", extra="none").__name__
    'json'
    """
    if find_spec("torchvision") is not None:
        with contextlib.suppress(RbpruneError):  # whoever needs it will say so
            import_torchvision()
    for name in names:
        package = name.partition(".")[0]
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as cause:
            if cause.name is None or cause.name.partition(".")[0] != package:
                raise error(f"{package} cannot be imported: {cause}; pip install {cause.name}") from cause
    packages = " or ".join(dict.fromkeys(name.partition(".")[0] for name in names))
    raise error(f"{packages} is not installed; pip install 'rbprune[{extra}]'")
