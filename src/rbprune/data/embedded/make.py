"""Make the embedded files from the official ones: ``python -m rbprune.data.embedded.make path/to/MNIST/raw``."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import torch

from rbprune.data.divide import split
from rbprune.data.mnist import read_mnist, write_idx

SIZES = {"train": 6000, "t10k": 1000}
SEED = 0


def make(raw: Path) -> dict[str, bytes]:
    """The uncompressed content of every embedded file: the same number of examples of each digit, in their order."""
    contents = {}
    for part, size in SIZES.items():
        images, labels = read_mnist(raw, part)
        chosen = torch.cat([_of_class(labels, digit, size // 10) for digit in range(10)]).sort().values
        contents[f"{part}-images-idx3-ubyte"] = write_idx(images[chosen, 0])
        contents[f"{part}-labels-idx1-ubyte"] = write_idx(labels[chosen].to(torch.uint8))
    return contents


def _of_class(labels: torch.Tensor, digit: int, count: int) -> torch.Tensor:
    examples = (labels == digit).nonzero().flatten()
    return examples[split(len(examples), count, SEED)[1]]


if __name__ == "__main__":
    for name, content in make(Path(sys.argv[1])).items():
        (Path(__file__).parent / f"{name}.gz").write_bytes(gzip.compress(content, 9, mtime=0))
