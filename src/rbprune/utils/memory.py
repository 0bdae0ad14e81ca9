"""Memory of a process that trains."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGEST_MMAP_THRESHOLD = 32 << 20  # glibc refuses more
_NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Ask glibc to keep freed memory for the next step instead of giving it back to the system.

    Activations are allocated and freed in every step; fetching their pages anew each time costs a CPU about a tenth of
    a ResNet-56 step (benchmarks/step.py). For processes that do nothing else, such as the command line. Returns
    whether the C library took the advice.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD) and mallopt(_M_TRIM_THRESHOLD, _NEVER))
