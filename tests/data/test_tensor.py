from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from rbprune.data import Source, TensorSource
from rbprune.errors import DataError
from rbprune.utils.seeds import mix

from .conftest import pixels

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
IMAGES, LABELS = pixels(23, 3, 8, 10), torch.arange(23) % 5


def source(**kwargs: Any) -> TensorSource:
    return TensorSource(IMAGES, LABELS, mean=MEAN, std=STD, **kwargs)


def epoch(of: Source, order: Tensor | None = None, **kwargs: Any) -> list[tuple[Tensor, Tensor]]:
    order = torch.arange(len(of)) if order is None else order
    return list(of.batches(order, 4, **{"seed": 3, "augment": True, **kwargs}))


def same(a: list[tuple[Tensor, Tensor]], b: list[tuple[Tensor, Tensor]]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(a, b, strict=True)
    )


def normalised(images: Tensor) -> Tensor:
    mean, std = torch.tensor(MEAN).view(3, 1, 1), torch.tensor(STD).view(3, 1, 1)
    return (images / 255 - mean) / std


def test_without_augmentation_batches_are_the_normalised_examples_in_order() -> None:
    order = torch.tensor([5, 0, 22, 7, 7, 1])
    batches = epoch(source(crop_padding=2, flip=True), order, augment=False)
    assert [len(y) for _, y in batches] == [4, 2]
    x, y = torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
    assert x.dtype == torch.float32 and x.is_contiguous()
    torch.testing.assert_close(x, normalised(IMAGES[order]), atol=1e-6, rtol=1e-5)
    assert torch.equal(y, LABELS[order])


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 3])
def test_augmentation_equals_an_explicit_crop_and_flip(padding: int, flip: bool) -> None:
    batches = epoch(source(crop_padding=padding, flip=flip))
    for k, (x, _) in enumerate(batches):
        generator = torch.Generator().manual_seed(mix(3, k))
        n = len(x)
        top, left = torch.randint(2 * padding + 1, (2, n, 1), generator=generator)
        mirrored = torch.rand((n, 1), generator=generator) < 0.5
        for i in range(n):
            padded = torch.zeros(3, 8 + 2 * padding, 10 + 2 * padding, dtype=torch.uint8)
            padded[:, padding : padding + 8, padding : padding + 10] = IMAGES[4 * k + i]
            crop = padded[:, int(top[i]) : int(top[i]) + 8, int(left[i]) : int(left[i]) + 10]
            if flip and mirrored[i]:
                crop = crop.flip(2)
            torch.testing.assert_close(x[i], normalised(crop), atol=1e-6, rtol=1e-5)


def test_every_offset_and_both_directions_occur() -> None:
    marked = torch.zeros(4000, 1, 3, 3, dtype=torch.uint8)
    marked[:, 0, 1, 1], marked[:, 0, 1, 2] = 100, 200
    crops = TensorSource(marked, torch.zeros(4000).long(), mean=[0], std=[1], crop_padding=1, flip=True)
    ((x, _),) = crops.batches(torch.arange(4000), 4000, seed=0, augment=True)
    places = torch.unique((x * 255).round().long().flatten(1), dim=0, return_counts=True)[1]
    assert len(places) == 9 * 2
    assert places.min() > 4000 / 18 * 0.6


def test_an_epoch_resumed_in_the_middle_gives_the_same_batches() -> None:
    whole = epoch(source(crop_padding=2, flip=True))
    for start in range(len(whole) + 1):
        assert same(epoch(source(crop_padding=2, flip=True), start=start), whole[start:])


def test_batches_depend_on_the_seed_alone() -> None:
    augmented = source(crop_padding=2, flip=True)
    first = epoch(augmented)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    assert same(epoch(augmented), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert not same(epoch(augmented, seed=4), first)
    order = torch.cat([torch.arange(4), torch.arange(4)])
    (x0, _), (x1, _) = epoch(augmented, order)
    assert not torch.equal(x0, x1)


def test_a_subset_of_a_subset_shares_the_images() -> None:
    part = source().subset(torch.tensor([20, 10, 4, 2])).subset(torch.tensor([3, 0]))
    assert len(part) == 2
    assert part.labels.tolist() == LABELS[[2, 20]].tolist()
    ((x, y),) = epoch(part, augment=False)
    torch.testing.assert_close(x, normalised(IMAGES[[2, 20]]), atol=1e-6, rtol=1e-5)
    assert torch.equal(y, part.labels)
    assert part._images.data_ptr() == IMAGES.data_ptr()
    with pytest.raises(DataError, match="the data has 2 examples"):
        part.subset(torch.tensor([2]))


def test_plain_is_never_augmented() -> None:
    augmented = source(crop_padding=2, flip=True).subset(torch.arange(9))
    assert same(epoch(augmented.plain()), epoch(augmented, augment=False))
    assert not same(epoch(augmented), epoch(augmented, augment=False))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": IMAGES.float()}, r"uint8 \[N, C, H, W\], got torch.float32"),
        ({"images": IMAGES[0]}, r"got torch.uint8 \[3, 8, 10\]"),
        ({"labels": LABELS[:4]}, r"int64 \[23\], one per image, got torch.int64 \[4\]"),
        ({"labels": LABELS.int()}, "got torch.int32"),
        ({"mean": (0.5,)}, "each of the 3 channels"),
        ({"std": (0.2, 0.0, 0.2)}, "std above 0"),
        ({"crop_padding": -1}, "got -1"),
    ],
)
def test_what_cannot_be_a_source_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        TensorSource(**{"images": IMAGES, "labels": LABELS, "mean": MEAN, "std": STD, **change})
