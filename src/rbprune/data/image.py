"""Images as examples: bytes from somewhere, decoded, cropped and normalised."""

from __future__ import annotations

import importlib
import io
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.utils.data import Dataset

from rbprune.errors import CorruptError
from rbprune.utils.torchvision import import_torchvision

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
IMAGE_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF")
"""What is decoded, whatever a file is called: PIL knows forty more, and hands some of them to other programs (EPS to
Ghostscript)."""
MOST_BYTES = 1 << 30
"""No image of a training set has more bytes than this; a file that does is something else."""
MOST_COMPRESSED, _ALWAYS_ALLOWED = 200, 1 << 26
"""How many times longer than its file the pixels of an image may be (photographs are 10 to 50 times), and how long they
may be anyway, such as for an empty page."""
IMAGE_ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp"})


@dataclass(frozen=True)
class ImageLook:
    """How images are resized and normalised before a network sees them."""

    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    interpolation: str = "bilinear"
    crop: float | None = None
    """The part of the shorter side that is left after the crop; None: of a square, 224/256."""

    def resized(self, size: int) -> int | tuple[int, int]:
        """The shorter side, or both, before a crop to ``size``."""
        if self.crop is not None:
            return math.floor(size / self.crop)
        larger = round(size * 256 / 224)
        return larger, larger


class ImageStore(Protocol):
    """Encoded images that can be read by their index, from files of their own or from shards."""

    @property
    def labels(self) -> Tensor:
        """The label of every image."""
        ...

    def read(self, index: int) -> bytes:
        """The bytes of the image at ``index``, as its file holds them."""
        ...

    def where(self, index: int) -> str:
        """The name of the image at ``index``, for messages."""
        ...


class ImageDataset(Dataset[tuple[Tensor, int]]):
    """The images of a store as pairs (x, label), decoded and transformed when they are asked for."""

    def __init__(self, store: ImageStore, *, size: int, augment: bool, look: ImageLook | None = None) -> None:
        self.store, self.size, self.augment, self.look = store, size, augment, look or ImageLook()

    def __len__(self) -> int:
        return len(self.store.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = decode(self.store.read(index), lambda: self.store.where(index))
        return transform(self.size, self.augment, self.look)(image), int(self.store.labels[index])


def decode(data: bytes, where: Callable[[], str]) -> Image.Image:
    """All pixels of an encoded image in RGB; what PIL only warns of (odd EXIF, odd palettes) is let pass, but for an
    image of more pixels than PIL thinks safe (89 million).

    ``where`` gives the name of the image, and is called only for an error.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with _pillow_open()(io.BytesIO(data), formats=IMAGE_FORMATS) as image:
                _check_size(image, len(data))
                return _eight_bits(image).convert("RGB")
    except UnidentifiedImageError as cause:
        known = f"it has no known image format ({', '.join(IMAGE_FORMATS)}), but begins with {data[:8]!r}"
        raise CorruptError(where(), known if data else "it is empty") from cause
    except MemoryError:
        raise
    except Exception as cause:  # damaged files make PIL raise nearly anything
        raise CorruptError(where(), str(cause) or type(cause).__name__) from cause


def _pillow_open() -> Callable[..., Image.Image]:
    """Pillow's own ``Image.open``: Ultralytics puts another one in its place, which installs a package where a file is
    no image, and keeps the original under this name."""
    found: Callable[..., Image.Image] = Image.open
    if found.__module__ == Image.__name__:
        return found
    kept = getattr(sys.modules.get(found.__module__), "_image_open", found)
    return kept if kept.__module__ == Image.__name__ else found


def _check_size(image: Image.Image, length: int) -> None:
    """Refuse an image that promises far more pixels than its file can hold, before room is made for them."""
    needed = 3 * image.width * image.height
    if needed > max(_ALWAYS_ALLOWED, MOST_COMPRESSED * length):
        raise ValueError(
            f"it says that it has {image.width} x {image.height} pixels, in {length:,} bytes, which no picture does"
        )


def _eight_bits(image: Image.Image) -> Image.Image:
    """An image of 16-bit grey levels as one of 8 bits, since ``convert`` would take all above 255 for white."""
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))


@lru_cache
def transform(size: int, augment: bool, look: ImageLook | None = None) -> Callable[[Image.Image], Tensor]:
    """The transform that resizes (by default to 256/224 of ``size``), crops, and normalises (as ImageNet's images are).

    With ``augment`` the crop is at a random place and mirrored at random, without it at the centre.
    """
    import_torchvision()
    v2 = importlib.import_module("torchvision.transforms.v2")
    look = look or ImageLook()
    crop = [v2.RandomCrop(size), v2.RandomHorizontalFlip()] if augment else [v2.CenterCrop(size)]
    composed: Callable[[Image.Image], Tensor] = v2.Compose(
        [
            v2.Resize(look.resized(size), v2.InterpolationMode(look.interpolation)),
            *crop,
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(look.mean, look.std),
        ]
    )
    return composed
