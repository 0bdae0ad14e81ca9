from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import torch
from PIL import Image

from rbprune.data.image import IMAGENET_MEAN, IMAGENET_STD, ImageDataset, decode, transform
from rbprune.errors import CorruptError
from tests.data.shard_files import jpeg


def test_evaluation_takes_the_centre_of_the_resized_image() -> None:
    grey = Image.new("RGB", (300, 100), (10, 20, 30))
    grey.paste((200, 100, 50), (0, 0, 300, 3))  # outside of the centre crop
    x = transform(224, False)(grey)
    expected = (torch.tensor([10, 20, 30]) / 255 - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD)
    assert x.shape == (3, 224, 224)
    torch.testing.assert_close(x, expected.view(3, 1, 1).expand_as(x))


def test_grey_levels_of_16_bits_become_8() -> None:
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    file = io.BytesIO()
    Image.fromarray(ramp).save(file, "PNG")
    assert np.array_equal(np.asarray(decode(file.getvalue(), str)), np.repeat((ramp >> 8)[..., None], 3, -1))


@pytest.mark.parametrize(
    ("data", "why"),
    [(b"", "it is empty"), (b"<html>", "it has no known image format"), (jpeg()[:700], "truncated")],
)
def test_what_cannot_be_decoded_is_corrupt_and_says_why(data: bytes, why: str) -> None:
    with pytest.raises(CorruptError, match=f"^the image: not a readable image: .*{why}"):
        decode(data, lambda: "the image")


EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 10 10
%%EndComments
(/tmp/rbprune-test-was-here) (w) file closefile
%%EOF
"""


@pytest.mark.parametrize("data", [EPS, b"%PDF-1.4\n", b"8BPS\0\1", b"P6\n1 1\n255\nabc", b"icns\0\0\0\x10"])
def test_only_the_formats_of_training_sets_are_decoded(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An EPS called .jpg would start Ghostscript."""
    monkeypatch.setattr("subprocess.check_call", lambda *_, **__: pytest.fail("another program was started"))
    with pytest.raises(CorruptError, match=r"image format \(JPEG, PNG, BMP, GIF, WEBP, TIFF\), but begins with b"):
        decode(data, lambda: "a.jpg")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF"])
def test_every_format_of_training_sets_is_decoded_whatever_its_name(kind: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 6), (200, 0, 0)).save(file, kind)
    assert decode(file.getvalue(), str).size == (8, 6)


def test_an_image_of_too_many_pixels_is_not_unpacked() -> None:
    """Some KB of PNG that would fill 300 MB."""
    file = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(file, "PNG")
    assert len(file.getvalue()) < 1e5
    with pytest.raises(CorruptError, match="exceeds limit of 89478485 pixels, could be decompression bomb"):
        decode(file.getvalue(), lambda: "a.png")


class Store:
    """Two images in memory."""

    labels = torch.tensor([7, 3])

    def read(self, index: int) -> bytes:
        return jpeg(index)

    def where(self, index: int) -> str:
        return f"image {index}"


def test_a_data_set_decodes_and_transforms_what_its_store_holds() -> None:
    plain = ImageDataset(Store(), size=28, augment=False)
    assert len(plain) == 2
    x, label = plain[1]
    assert label == 3 and torch.equal(x, transform(28, False)(decode(jpeg(1), str)))


def test_augmentation_crops_at_random_and_mirrors() -> None:
    augmented = ImageDataset(Store(), size=28, augment=True)
    torch.manual_seed(0)
    found = [augmented[0][0] for _ in range(40)]
    assert len({tuple(x.flatten().tolist()) for x in found}) > 10
    assert all(x.shape == (3, 28, 28) for x in found)
    assert any(torch.equal(a, b.flip(2)) for a in found for b in found)


def test_a_file_that_is_no_image_is_told_as_such_after_ultralytics_has_replaced_pillows_open() -> None:
    script = (
        "from rbprune.utils.torchvision import import_torchvision; import_torchvision();"
        "import ultralytics.utils.patches;"
        "from rbprune.data.image import decode; decode(b'nothing', lambda: 'a.jpg')"
    )
    environment = {**os.environ, "YOLO_AUTOINSTALL": "False", "YOLO_CONFIG_DIR": tempfile.gettempdir()}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert "a.jpg: not a readable image: it has no known image format" in done.stderr
