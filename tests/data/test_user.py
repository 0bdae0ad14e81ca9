from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rbprune.data import load
from rbprune.errors import DataError

HEAD = """
import torch
from torch.utils.data import Dataset, TensorDataset
from rbprune.data import Data, DatasetSource, TensorSource

def tensors(n):
    return TensorDataset(torch.arange(n).float().view(n, 1, 1, 1).expand(n, 2, 3, 3), torch.arange(n) % 4)
"""


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def write(body: str) -> str:
        file = tmp_path / "mine.py"
        file.write_text(HEAD + body)
        return f"{file}:make"

    return write


def test_a_pair_of_data_sets(write) -> None:  # type: ignore[no-untyped-def]
    data = load(write("def make(path): return tensors(int(path)), tensors(8)"), "40", val=8, limit=12)
    assert data.val is not None
    assert (len(data.train), len(data.val), len(data.test)) == (12, 8, 8)
    assert (data.classes, data.shape) == (4, (2, 3, 3))
    ((x, y),) = data.val.batches(torch.arange(8), 8, seed=0, augment=False)
    assert y.bincount().tolist() == [2, 2, 2, 2]
    assert torch.equal(x[:, 0, 0, 0].long() % 4, y)


def test_a_data_of_its_own_keeps_its_validation_set(write) -> None:  # type: ignore[no-untyped-def]
    spec = write("""
def make(path):
    source = DatasetSource(tensors(20))
    return Data(source, DatasetSource(tensors(5)), source, 4, (2, 3, 3))
""")
    data = load(spec, val=7, limit=10)
    assert data.val is not None
    assert (len(data.train), len(data.val)) == (10, 5)


def test_a_source_that_cannot_be_divided_is_named(write) -> None:  # type: ignore[no-untyped-def]
    spec = write("""
class Stream:
    def __len__(self): return 20
    def batches(self, order, batch_size, *, seed, augment, start=0): yield from ()

def make(path): return Data(Stream(), None, Stream(), 4, (2, 3, 3))
""")
    assert len(load(spec).train) == 20
    with pytest.raises(DataError, match=r"training source Stream cannot be divided.*labels, subset"):
        load(spec, val=4)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def make(path): return 5", "returned int; return an rbprune.data.Data or"),
        ("def make(path): return (tensors(3),)", "returned a tuple of 1"),
        ("def make(path): return 1 / 0", r"make\(None\) failed: ZeroDivisionError"),
        ("def build(path): return 1", "has no function 'make'"),
        (
            "class Bare(Dataset):\n    def __len__(self): return 3\n"
            "    def __getitem__(self, i): return torch.zeros(1), 0\n"
            "def make(path): return Bare(), Bare()",
            "number of classes is unknown.*'targets'",
        ),
        (
            "class Text(Dataset):\n    targets = [0, 1]\n    def __len__(self): return 2\n"
            "    def __getitem__(self, i): return 'text', 0\ndef make(path): return Text(), Text()",
            "first training example is str; return a tensor",
        ),
    ],
)
def test_what_cannot_be_data_is_named(write, body: str, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DataError, match=message):
        load(write(body))
