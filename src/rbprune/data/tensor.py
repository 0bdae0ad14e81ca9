"""A whole data set in memory, augmented a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rbprune.data.source import check_order
from rbprune.errors import DataError
from rbprune.utils.seeds import mix


@dataclass(frozen=True)
class ImageTraits:
    """What the images of a known data set are, and how they are normalised and augmented."""

    shape: tuple[int, int, int]
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_padding: int
    flip: bool


class TensorSource:
    """Images as one uint8 tensor [N, C, H, W]; a batch is cropped, flipped and normalised as a whole.

    ``crop_padding`` black pixels are put around each image before a crop of its own size is taken at random;
    ``flip`` mirrors each image with probability 1/2. ``mean`` and ``std`` are per channel, for pixels scaled to 0..1.

    >>> images = torch.full((4, 1, 2, 2), 255, dtype=torch.uint8)
    >>> source = TensorSource(images, torch.tensor([0, 1, 0, 1]), mean=[0.5], std=[0.5])
    >>> for x, y in source.batches(torch.arange(4), 2, seed=0, augment=False):
    ...     print(x.mean().round().item(), y.tolist())
    1.0 [0, 1]
    1.0 [0, 1]
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        crop_padding: int = 0,
        flip: bool = False,
    ) -> None:
        _check(images, labels, mean, std, crop_padding)
        self._images = images
        self._labels = labels
        self._mean, self._std = tuple(mean), tuple(std)
        self._crop_padding, self._flip = crop_padding, flip
        self._index: Tensor | None = None
        channels = (1, -1, 1, 1)
        # (x / 255 - mean) / std = x * scale + shift
        self._scale = (1 / (255 * torch.tensor(std, dtype=torch.float64))).float().view(channels)
        self._shift = (-torch.tensor(mean, dtype=torch.float64) / torch.tensor(std)).float().view(channels)

    def __len__(self) -> int:
        return len(self._labels) if self._index is None else len(self._index)

    @property
    def labels(self) -> Tensor:
        """The label of every example."""
        return self._labels if self._index is None else self._labels[self._index]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self._images.shape[1:])

    def subset(self, indices: Tensor) -> TensorSource:
        """The source of the examples at these indices; their images are shared, not copied."""
        if len(indices):
            check_order(indices, 1, 0, len(self))
        part = self._copy(self._crop_padding, self._flip)
        part._index = indices.clone() if self._index is None else self._index[indices]
        return part

    def plain(self) -> TensorSource:
        """The source of the same examples that never augments them."""
        return self._copy(0, False)

    def batches(
        self, order: Tensor, batch_size: int, *, seed: int, augment: bool, start: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches from ``start`` on; see :meth:`rbprune.data.Source.batches`."""
        count = check_order(order, batch_size, start, len(self))
        augment = augment and (self._flip or self._crop_padding > 0)
        for k in range(start, count):
            index = order[k * batch_size : (k + 1) * batch_size]
            if self._index is not None:
                index = self._index[index]
            images = self._images.index_select(0, index)
            if augment:
                images = self._augment(images, torch.Generator().manual_seed(mix(seed, k)))
            yield torch.addcmul(self._shift, images, self._scale), self._labels[index]

    def _augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        n, channels, height, width = images.shape
        padding = self._crop_padding
        top, left = torch.randint(2 * padding + 1, (2, n, 1), generator=generator)
        rows = top + torch.arange(height)
        columns = left + torch.arange(width)
        if self._flip:
            mirrored = torch.rand((n, 1), generator=generator) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        padded = F.pad(images, (padding,) * 4)
        pixels = rows[:, :, None] * padded.shape[3] + columns[:, None, :]
        pixels = pixels.view(n, 1, -1).expand(-1, channels, -1)
        return padded.flatten(2).gather(2, pixels).view(images.shape)

    def _copy(self, crop_padding: int, flip: bool) -> TensorSource:
        copy = TensorSource(
            self._images, self._labels, mean=self._mean, std=self._std, crop_padding=crop_padding, flip=flip
        )
        copy._index = self._index
        return copy


def _check(images: Tensor, labels: Tensor, mean: Sequence[float], std: Sequence[float], crop_padding: int) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise DataError(f"images must be uint8 [N, C, H, W], got {images.dtype} {list(images.shape)}")
    if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
        raise DataError(f"labels must be int64 [{len(images)}], one per image, got {labels.dtype} {list(labels.shape)}")
    if not len(mean) == len(std) == images.shape[1] or min(std) <= 0:
        raise DataError(
            f"mean and std must have one number for each of the {images.shape[1]} channels, std above 0; "
            f"got mean={list(mean)}, std={list(std)}"
        )
    if crop_padding < 0:
        raise DataError(f"crop_padding must be 0 or more pixels, got {crop_padding}")
