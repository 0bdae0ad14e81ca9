"""Code that a run folder names: whether it is the user's own, who started the run, or a stranger's.

Whoever makes a folder can write everything in it, so nothing in it can vouch for it. What vouches is a seal: a keyed
hash of the code that the settings name (which function, in which file, on which data), made with a key that lies in
the user's home. A run that the user starts is sealed, and resumes as it began; a folder from elsewhere is not, and what
it names is run only when the user says so.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.errors import RbpruneError, UntrustedCodeError
from rbprune.models.registry import is_users_code
from rbprune.runs.folder import RunFolder
from rbprune.settings.sections import Settings
from rbprune.utils.files import write_atomic
from rbprune.utils.imports import is_spec, locate
from rbprune.utils.names import printable
from rbprune.utils.processes import is_main

_KEY_BYTES = 32
_LONGEST_SEAL = 4096
ADD_TRUST = "add --trust (in Python trust=True)"
"""What lets a command run code that only a folder names."""


def named_code(settings: Settings) -> dict[str, str]:
    """The functions that settings name, by the name of the setting; what comes with rbprune is none of them."""
    found = {}
    if is_users_code(settings.model.name):
        found["model.name"] = settings.model.name
    if is_spec(settings.data.name):
        found["data.name"] = settings.data.name
    if settings.runtime.tracker is not None:
        found["runtime.tracker"] = settings.runtime.tracker
    return found


def seal_code(run: RunFolder, settings: Settings) -> None:
    """Note in a run folder that its user named the code of its settings; without code, or a home, there is no note."""
    key, claim = _key(make=True), _claim(run, settings, named_code(settings))
    if key is not None and claim is not None:
        write_atomic(run.seal_file, json.dumps({"seal": _seal(key, claim)}))


def check_code(
    run: RunFolder,
    settings: Settings,
    *,
    trust: bool = False,
    model: bool = True,
    data: bool = True,
    tracker: bool = True,
    remedy: str = ADD_TRUST,
) -> None:
    """Refuse to go on where the settings of a folder name code that its user did not name when the run was started.

    With ``trust`` the code is shown and let run. ``model``, ``data`` and ``tracker`` say what of it is going to be
    used, and ``remedy`` what to do about a refusal.
    """
    used = {"model.name": model, "data.name": data, "runtime.tracker": tracker}
    code = {setting: spec for setting, spec in named_code(settings).items() if used[setting]}
    if code and not _is_sealed(run, settings):
        allow_code(run.path, code, trust=trust, remedy=remedy)


def allow_code(folder: Path, code: Mapping[str, str], *, trust: bool, remedy: str = ADD_TRUST) -> None:
    """Refuse code that nobody but a folder names, by the names of its settings; with ``trust`` show it instead."""
    listed = "; ".join(f"{setting} = {spec!r}, which is {_place(spec)}" for setting, spec in code.items())
    if not trust:
        raise UntrustedCodeError(
            f"{folder} names code that would be run, and nothing shows that you started this run here: {listed}; "
            f"nothing was run; read it, and if you trust it, {remedy}"
        )
    if is_main():
        Console(stderr=True).print(
            f"running code that {folder} names: {listed}", markup=False, highlight=False, soft_wrap=True
        )


def resume_with_trust(run: RunFolder) -> str:
    """The remedy where a run is refused that would be gone on with, by whatever command: of the runs of a comparison
    each is trusted by itself."""
    return f"go on with 'rbprune resume {run} --trust' (in Python trust=True)"


def check_links(run: RunFolder, *, trust: bool = False) -> None:
    """Refuse to go on in a folder that leads elsewhere what a run appends to: its log would end in another file."""
    for path in (run.events_file, run.tensorboard, run.checkpoints, run.steps):
        if path.is_symlink() and not trust:
            raise UntrustedCodeError(
                f"{printable(path)} is a link to {printable(os.readlink(path))!r}, and a run that goes on would write "
                "there; nothing was written; put the file itself there, or, if the link is yours, add --trust"
            )


def _place(spec: str) -> str:
    """Where the code lies, for people."""
    try:
        return repr(str(locate(spec)))
    except RbpruneError as error:
        return f"not to be found here ({error})"


def _claim(run: RunFolder, settings: Settings, code: dict[str, str]) -> dict[str, Any] | None:
    """What is sealed; None where there is nothing to be sealed, or the code lies where strangers could have put it.

    The current folder is where modules are looked up, so it may not be the run's own either.
    """
    try:
        places = {setting: [spec, str(locate(spec))] for setting, spec in code.items()}
        here = run.path.resolve()
        by_module = any(not spec.rpartition(":")[0].endswith(".py") for spec in code.values())
        if not code or any(Path(place).is_relative_to(here) for _, place in places.values()):
            return None
        if by_module and Path.cwd().is_relative_to(here):
            return None
        path = None if settings.data.path is None else os.path.abspath(os.path.expanduser(settings.data.path))
    except (RbpruneError, OSError, ValueError, RuntimeError):
        return None
    return {"code": places, "data.path": path}


def _is_sealed(run: RunFolder, settings: Settings) -> bool:
    key, claim = _key(make=False), _claim(run, settings, named_code(settings))
    if key is None or claim is None or not run.seal_file.is_file() or run.seal_file.stat().st_size > _LONGEST_SEAL:
        return False
    try:
        found = json.loads(run.seal_file.read_bytes())["seal"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(found, str) and hmac.compare_digest(found.encode("utf-8", "replace"), _seal(key, claim).encode())


def _seal(key: bytes, claim: dict[str, Any]) -> str:
    return hmac.new(key, json.dumps(claim, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key(*, make: bool) -> bytes | None:
    """The user's key, made when it is first needed; None where there is no home to keep it in."""
    try:
        state = os.environ.get("XDG_STATE_HOME", "")
        folder = (Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state") / "rbprune"
        path = folder / "key"
        if make and not path.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write_once(path, secrets.token_bytes(_KEY_BYTES))
        if not path.is_file() or path.stat().st_uid != os.getuid():
            return None
        key = path.read_bytes()
    except (OSError, RuntimeError):
        return None
    return key if len(key) == _KEY_BYTES else None


def _write_once(path: Path, content: bytes) -> None:
    """Write a file that only its user may read, whole or not at all; if another process was faster, its file stays."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
        if not path.exists():
            os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink(missing_ok=True)
