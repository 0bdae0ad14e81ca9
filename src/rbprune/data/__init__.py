"""Data by name, in batches that depend only on the order, the seed and their number."""

from __future__ import annotations

from rbprune.data.dataset import DatasetSource
from rbprune.data.divide import split
from rbprune.data.registry import NAMES, load
from rbprune.data.source import Data, Divisible, Skipped, Source
from rbprune.data.tensor import TensorSource

__all__ = ["NAMES", "Data", "DatasetSource", "Divisible", "Skipped", "Source", "TensorSource", "load", "split"]
