"""Finding a user's own function from a string: ``package.module:factory`` or ``path/file.py:factory``.

Such a string may come from somebody else's recipe, so it reaches only what a module defines itself, and nothing of the
standard library: ``os:system`` is no factory.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
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

    >>> find("rbprune.models.lenet:LeNet5")(classes=3).fc2.out_features
    3
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


def find(spec: str, *, error: type[RbpruneError] = RbpruneError, installed: bool = True) -> Factory:
    """Import the module named before the last colon and return the function named after it, which it must define.

    Without ``installed`` functions of installed packages are refused: a factory that is handed text from a recipe shall
    be one that was written to be handed it.
    """
    place, attribute = _parts(spec, error)
    if place.endswith(".py"):
        path = _file(place, spec, error)
        folder, module = path.parent, _import_file(path, spec, error)
    else:
        folder = Path.cwd()
        module = _import_module(place, folder, spec, error)
        if not installed and _is_installed(module):
            raise error(
                f"{spec!r}: {place} is an installed package ({module.__file__}), and none of its functions was written "
                f"to be handed what a recipe says; write a function of your own that calls it, in a file, and name "
                "that as path/file.py:factory"
            )
    function = getattr(module, attribute, None)
    if not callable(function):
        functions = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        listed = ", ".join(functions[:10]) or "none"
        raise error(
            f"{spec!r}: {place} has no function {attribute!r}{nearest(attribute, functions)} (it has: {listed})"
        )
    _check_definition(function, module, spec, error)
    return Factory(spec, module, function, folder, error)


def locate(spec: str, *, error: type[RbpruneError] = RbpruneError) -> Path:
    """The file that ``find`` would run, or that of the package which it would import first; nothing is run.

    >>> locate("rbprune.models.lenet:LeNet5").as_posix().endswith("rbprune/__init__.py")
    True
    """
    place, _ = _parts(spec, error)
    if place.endswith(".py"):
        return _file(place, spec, error)
    try:
        with _on_path(Path.cwd()):
            found = importlib.util.find_spec(place.partition(".")[0])
    except (ImportError, ValueError) as cause:
        raise error(f"{spec!r}: {place} cannot be found: {cause}; install it, or name its file") from cause
    folders = [] if found is None else list(found.submodule_search_locations or ())
    origin = found.origin if found is not None and found.has_location else next(iter(folders), None)
    if origin is None:
        raise error(f"{spec!r}: there is no module {place}; install it, or name its file as path/file.py:factory")
    return Path(origin).resolve()


def _parts(spec: str, error: type[RbpruneError]) -> tuple[str, str]:
    """The module and the function that a string names; the standard library is refused before it is imported."""
    place, _, attribute = spec.rpartition(":")
    if not place or not attribute.isidentifier():
        raise error(f"{spec!r} does not name a function; write 'package.module:factory' or 'path/file.py:factory'")
    if not place.endswith(".py") and place.partition(".")[0] in {*sys.stdlib_module_names, "__main__"}:
        raise error(
            f"{spec!r}: {place} is a module of Python itself, whose functions make no network and no data and could do "
            f"anything else; nothing was run; name your own package.module:factory (a module of yours with the same "
            f"name by its file, as {place}.py:{attribute})"
        )
    return place, attribute


def _file(place: str, spec: str, error: type[RbpruneError]) -> Path:
    try:
        return Path(os.path.expanduser(place)).resolve()
    except (OSError, ValueError, RuntimeError) as cause:  # a NUL, a circle of links
        raise error(f"{spec!r}: {place!r} is no path: {cause}; name a file of yours") from cause


def _is_installed(module: ModuleType) -> bool:
    """Whether a module lies among the installed packages, not in a folder of the user's."""
    folders = [Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")]
    path = Path(module.__file__ or folders[0]).resolve()
    return any(path.is_relative_to(folder) for folder in folders) or "site-packages" in path.parts


def _check_definition(function: Any, module: ModuleType, spec: str, error: type[RbpruneError]) -> None:
    """Refuse what a module only passes on, or was made elsewhere: its name says nothing about what would run."""
    home = getattr(function, "__module__", None)
    if home == module.__name__:
        return
    place, attribute = _parts(spec, error)
    named = getattr(function, "__qualname__", type(function).__qualname__)
    own = f"a function of {place} (def {attribute}(...): ...)"
    known = isinstance(home, str) and home.partition(".")[0] not in sys.stdlib_module_names
    raise error(
        f"{spec!r}: {place} does not define {attribute!r} itself: it is {home}.{named}; nothing was run; "
        + (f"name it where it is defined, as {home}:{named}, or write {own}" if known else f"write {own}")
    )


class _FromSource(SourceFileLoader):
    """Compiles what stands in the file now; cached bytecode knows its age in whole seconds only."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _import_file(path: Path, spec: str, error: type[RbpruneError]) -> ModuleType:
    if not path.is_file():
        raise error(f"{spec!r}: there is no file {path}; give the path from the current folder or an absolute one")
    try:
        source = path.read_bytes()
    except OSError as cause:
        raise error(f"{spec!r}: {path} cannot be read: {cause.strerror}; check who may read it") from cause
    # The name changes with the file, so that an edited file is read again and an unchanged one is not run twice.
    # By its content: two edits may fall within one tick of the file system's clock.
    digest = hashlib.sha256(os.fsencode(f"{path}:") + source).hexdigest()[:12]
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
