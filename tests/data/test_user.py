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


def odd(example: str, more: str = "targets = [0, 1]") -> str:
    """A data set of three classes that returns the same for every index."""
    return (
        f"class Odd(Dataset):\n    classes = 3\n    {more}\n    def __len__(self): return 2\n"
        f"    def __getitem__(self, i): return {example}\ndef make(path): return Odd(), Odd()"
    )


@pytest.mark.parametrize("targets", ["['cat', 'dog']", "[None, None]", "[{'box': 1}, {}]"])
def test_targets_that_are_no_numbers_are_passed_over(write, targets: str) -> None:  # type: ignore[no-untyped-def]
    data = load(write(odd("(torch.zeros(1), 0)", f"targets = {targets}")))
    assert (data.classes, len(data.train)) == (3, 2)


def test_only_a_source_that_can_do_without_augmentation_is_asked_to(write) -> None:  # type: ignore[no-untyped-def]
    pair = write("def make(path): return tensors(20), tensors(8)")
    with pytest.raises(DataError, match=r"data.augment=false.*evaluation=plain_dataset"):
        load(pair, augment=False)
    source = "DatasetSource(tensors(20), evaluation=tensors(20))"
    both = write(f"def make(path): return Data({source}, None, tensors(8), 4, (2, 3, 3))")
    assert len(load(both, augment=False, val=4).train) == 16


def test_an_example_of_a_subset_is_named_by_its_place_in_the_whole(write) -> None:  # type: ignore[no-untyped-def]
    spec = write("""
class Odd(Dataset):
    targets = [0, 1] * 4
    def __len__(self): return 8
    def __getitem__(self, i): return (torch.zeros(1), 0) if i < 7 else None

def make(path): return Odd(), Odd()
""")
    train = load(spec, limit=7).train
    with pytest.raises(DataError, match="example 7 of the data set is a NoneType"):
        list(train.batches(torch.arange(7), 7, seed=0, augment=True))


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
        (odd("{'x': torch.zeros(1), 'y': 0}"), r"training example 0 is a dict with 'x', 'y', not \(x, y\)"),
        (odd("(torch.zeros(1), 0, 5)"), r"training example 0 is a tuple of 3, not \(x, y\)"),
        (odd("(torch.zeros(1).double(), 0)"), r"first training example is torch.float64; convert it with .float\(\)"),
        (odd("(torch.zeros(1), 0)", "targets = [0, -1]"), "training set: label -1 of example 1 is not one of 0 to 2"),
        (odd("(torch.zeros(1), 0)", "targets = [0, 3]"), "training set: label 3 of example 1 is not one of 0 to 2"),
    ],
)
def test_what_cannot_be_data_is_named(write, body: str, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DataError, match=message):
        load(write(body))
