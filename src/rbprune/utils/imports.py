"""Finding a user's own function from a string: ``package.module:factory`` or ``path/file.py:factory``."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from rbprune.errors import RbpruneError, nearest


@dataclass(frozen=True)
class Factory:
    """A function of the user's and the module it lives in.

    Calling it turns whatever the function raises into ``error``, with the function's name in the message.

    >>> find("math:hypot")(3, 4)
    5.0
    """

    spec: str
    module: ModuleType
    function: Callable[..., Any]
    folder: Path
    error: type[RbpruneError]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with _on_path(self.folder):
                return self.function(*args, **kwargs)
        except RbpruneError:
            raise
        except Exception as cause:
            given = ", ".join([*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())])
            raise self.error(f"{self.spec}({given}) failed: {type(cause).__name__}: {cause}") from cause

    def accepts(self, keyword: str) -> bool:
        """Whether the function can be called with this keyword."""
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except ValueError:  # some builtins have no signature
            return False
        return any(
            p.kind is p.VAR_KEYWORD or (p.name == keyword and p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))
            for p in parameters
        )


def is_spec(name: str) -> bool:
    """Whether a name has the form of a user's function rather than of a built-in name.

    >>> is_spec("nets.py:make"), is_spec("lenet5")
    (True, False)
    """
    return ":" in name


def find(spec: str, *, error: type[RbpruneError] = RbpruneError) -> Factory:
    """Import the module named before the last colon and return the function named after it."""
    place, _, attribute = spec.rpartition(":")
    if not place or not attribute.isidentifier():
        raise error(f"{spec!r} does not name a function; write 'package.module:factory' or 'path/file.py:factory'")
    if place.endswith(".py"):
        path = Path(place).expanduser().resolve()
        folder, module = path.parent, _import_file(path, spec, error)
    else:
        folder = Path.cwd()
        module = _import_module(place, folder, spec, error)
    function = getattr(module, attribute, None)
    if not callable(function):
        functions = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        listed = ", ".join(functions[:10]) or "none"
        raise error(
            f"{spec!r}: {place} has no function {attribute!r}{nearest(attribute, functions)} (it has: {listed})"
        )
    return Factory(spec, module, function, folder, error)


class _FromSource(SourceFileLoader):
    """Compiles what stands in the file now; cached bytecode knows its age in whole seconds only."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _import_file(path: Path, spec: str, error: type[RbpruneError]) -> ModuleType:
    if not path.is_file():
        raise error(f"{spec!r}: there is no file {path}; give the path from the current folder or an absolute one")
    # The name changes with the file, so that an edited file is read again and an unchanged one is not run twice.
    # By its content: two edits may fall within one tick of the file system's clock.
    digest = hashlib.sha256(f"{path}:".encode() + path.read_bytes()).hexdigest()[:12]
    name = f"rbprune_user_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, path, loader=_FromSource(name, str(path)))
    if found is None or found.loader is None:
        raise error(f"{spec!r}: {path} cannot be imported as Python source")
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        with _on_path(path.parent):
            found.loader.exec_module(module)
    except Exception as cause:
        del sys.modules[name]
        raise error(f"{spec!r}: importing {path} failed: {type(cause).__name__}: {cause}") from cause
    return module


def _import_module(name: str, folder: Path, spec: str, error: type[RbpruneError]) -> ModuleType:
    try:
        with _on_path(folder):
            return importlib.import_module(name)
    except Exception as cause:
        remedy = "; install it, or name its file as path/file.py:factory" if isinstance(cause, ImportError) else ""
        raise error(f"{spec!r}: importing {name} failed: {type(cause).__name__}: {cause}{remedy}") from cause


@contextlib.contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    entry = str(folder)
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(entry)
