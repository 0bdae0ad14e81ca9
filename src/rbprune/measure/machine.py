"""What a time was measured on, so that it can be cited."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from rbprune.errors import ConfigError

DEVICES = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True)
class Machine:
    """A device and the software on it."""

    device: str
    name: str
    threads: int
    torch: str

    def __str__(self) -> str:
        return f"{self.device} ({self.name}), {self.threads} thread{'s'[: self.threads > 1]}, torch {self.torch}"


def find_device(name: str = "auto") -> torch.device:
    """The device of this name, if it is there; ``auto`` takes an accelerator before the CPU.

    >>> find_device("cpu")
    device(type='cpu')
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, there in available.items() if there))
    if name not in DEVICES:
        raise ConfigError(f"unknown device {name!r}; known are {', '.join(DEVICES)}")
    if not available[name]:
        here = ", ".join(kind for kind, there in available.items() if there)
        raise ConfigError(f"device {name!r} is not available to torch here; use auto or one of: {here}")
    return torch.device(name)


def synchroniser(device: torch.device) -> Callable[[], None]:
    """A function that waits until the device has done all it was given."""
    if device.type == "cuda":
        return torch.cuda.synchronize
    if device.type == "mps":
        return torch.mps.synchronize
    return lambda: None


def machine(device: torch.device) -> Machine:
    """This machine as torch uses it now."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else cpu_name()
    return Machine(device.type, name, torch.get_num_threads(), torch.__version__)


def cpu_name() -> str:
    """The processor's name, as well as the system knows it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
