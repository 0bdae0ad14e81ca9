"""The constants of the known data sets."""

from __future__ import annotations

from dataclasses import dataclass

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Traits:
    """How the images of a set are normalised and augmented, and what they are."""

    shape: tuple[int, int, int]
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_padding: int
    flip: bool


MNIST = Traits(shape=(1, 28, 28), classes=10, mean=(0.1307,), std=(0.3081,), crop_padding=2, flip=False)
CIFAR10 = Traits(shape=(3, 32, 32), classes=10, mean=IMAGENET_MEAN, std=IMAGENET_STD, crop_padding=4, flip=True)
