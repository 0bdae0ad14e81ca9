"""How much memory a call takes at its peak, beyond what was taken before it."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_bytes(call: Callable[[], Any], device: torch.device | None = None) -> int | None:
    """Bytes that ``call`` takes at its peak; None where the system does not tell (CPUs outside of Linux, MPS).

    On CUDA it is torch's own count. On a CPU it is the kernel's: the highest resident memory of the process during the
    call, less that before it, after memory that was freed earlier has been given back. It is right to about half a
    megabyte in a fresh process; in one that has run for long the heap has gaps, what the call itself frees is not
    always taken again, and it can look higher. Other threads of the process count too.
    """
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    if (device is not None and device.type != "cpu") or not _reset_peak():
        return None
    before = _resident("VmRSS")
    call()
    return max(0, _resident("VmHWM") - before)


def _reset_peak() -> bool:
    """Give back what is free, and let the kernel forget the highest value so far; False where it does not."""
    if sys.platform != "linux":
        return False
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):  # another libc: what it holds back makes the peak look lower
        return False
    try:
        RESET.write_text("5")
    except OSError:
        return False
    return True


def _resident(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])
