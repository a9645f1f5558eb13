"""WebP images become PNGs in a process that sees nothing else."""

from __future__ import annotations

import asyncio
import io

import pytest
from PIL import Image

from puna.daemon.images import ImageConverter
from puna.worker.images.messages import ImageError

pytestmark = pytest.mark.e2e


def webp(image: Image.Image) -> bytes:
    output = io.BytesIO()
    image.save(output, "WEBP", lossless=True)
    return output.getvalue()


def test_pixels_stay_as_they_are():
    images = [
        Image.effect_noise(size, 80).convert(mode) for size, mode in (((9, 5), "RGB"), ((4, 4), "RGBA"))
    ]
    pngs = asyncio.run(ImageConverter().to_png([webp(image) for image in images]))
    for image, png in zip(images, pngs, strict=True):
        with Image.open(io.BytesIO(png), formats=["PNG"]) as opened:
            assert opened.tobytes() == image.convert("RGB").tobytes()


def test_what_cannot_be_decoded_is_told_and_the_next_one_is_not_harmed():
    whole = webp(Image.new("RGB", (64, 64)))
    for broken in (whole[:-9], b"RIFF\x10\0\0\0WEBPVP8L", b""):
        with pytest.raises(ImageError, match="cannot be decoded"):
            asyncio.run(ImageConverter().to_png([whole, broken]))
