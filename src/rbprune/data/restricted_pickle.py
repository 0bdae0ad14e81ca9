"""Reading the one pickle format that cannot be avoided, CIFAR10's Python files, without running what it names."""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rbprune.errors import DataError
from rbprune.utils.plain_file import read_plain


def read_plain_pickle(path: Path) -> Any:
    """The numbers, texts, lists, dicts and uint8 arrays in a pickle.

    A pickle is a program whose only way to reach other code is to name a function, which the reader looks up with
    ``find_class``. Here four names are known, and each stands for a function of this file that can make nothing but
    bytes or an empty uint8 array, to be filled with bytes by numpy's own checked ``__setstate__``. Any other
    name (``os.system``, ``builtins.eval``, ...) ends the reading before anything is called.
    """
    raw = read_plain(path, DataError)
    try:
        _check_steps(raw)
        return _Reader(io.BytesIO(raw), path).load()
    except DataError:
        raise
    except Exception as cause:  # a damaged pickle can fail in any way
        size = len(raw)
        raise DataError(
            f"{path}: damaged, cannot be read after {size:,} bytes: {type(cause).__name__}: {cause}; download it again"
        ) from cause


def _check_steps(raw: bytes) -> None:
    """Look at every step of the program without making any: the number of a note may not exceed that of the steps.

    The reader makes room for as many notes as the largest number says, which four bytes make 64 GB.
    """
    for steps, (step, argument, _) in enumerate(pickletools.genops(io.BytesIO(raw))):
        if step.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= int(argument or 0) <= steps:
            raise ValueError(f"note number {argument} after {steps} steps")


class _Reader(pickle.Unpickler):
    def __init__(self, file: Any, path: Path) -> None:
        super().__init__(file, encoding="latin1")
        self._path = path

    def find_class(self, module: str, name: str) -> Any:
        known = _KNOWN.get((module, name))
        if known is None:
            raise DataError(
                f"{self._path}: refers to {module}.{name}, which no CIFAR10 file needs and which could run code; "
                "nothing was run; download the file again from the CIFAR page"
            )
        return known


def _empty_array(*_: Any) -> np.ndarray[Any, Any]:
    return np.empty(0, np.uint8)


def _uint8(code: str, *_: Any) -> np.dtype[Any]:
    if code != "u1":
        raise ValueError(f"an array of type {code!r}, where only bytes (u1) are expected")
    return np.dtype(np.uint8)


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise ValueError(f"encoding {encoding!r}, where only latin1 is expected")
    return text.encode("latin1")


def _never_called(*_: Any) -> None:
    raise ValueError("numpy.ndarray called directly")


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "dtype"): _uint8,
    ("numpy", "ndarray"): _never_called,
    ("_codecs", "encode"): _encode,
}
