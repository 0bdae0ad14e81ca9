"""Scalars and rate histograms for TensorBoard, when a folder is given and tensorboard is installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rbprune.utils.files import write_errors


class TensorBoard:
    """Writes event files into ``folder``; does nothing when it is None or tensorboard is absent."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = Path("." if folder is None else folder)
        with write_errors(self._folder):
            self._writer: Any = None if folder is None else _summary_writer(folder)

    def scalars(self, step: int, **values: float | None) -> None:
        """Write one point of each named curve; values that are None are left out."""
        if self._writer is not None:
            for name, value in values.items():
                if value is not None:
                    with write_errors(self._folder):
                        self._writer.add_scalar(name, float(value), step)

    def values(self, step: int, diagnostic: str, values: Mapping[str, Tensor]) -> None:
        """Write one histogram per site of what the method found about its channels, such as their rates."""
        if self._writer is not None:
            for site, found in values.items():
                finite = torch.as_tensor(found).detach().float().flatten()
                finite = finite[finite.isfinite()]
                if finite.numel():
                    with write_errors(self._folder):
                        self._writer.add_histogram(f"{diagnostic}/{site}", finite, step)

    def close(self) -> None:
        """Write what is pending and close the files; calls after that do nothing."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            with write_errors(self._folder):
                writer.close()

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _summary_writer(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(log_dir=str(folder))
