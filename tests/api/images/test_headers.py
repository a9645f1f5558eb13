"""What images say of themselves, against Pillow, and what is not believed."""

from __future__ import annotations

import asyncio
import io
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from puna.api.errors import ApiError
from puna.api.images.checking import check_places, prepared_images
from puna.api.images.headers import ImageError, read_header
from puna.daemon.images import ImageConverter

pytestmark = pytest.mark.unit


def encoded(form: str, size: tuple[int, int] = (5, 7), **how: Any) -> bytes:
    output = io.BytesIO()
    Image.new("RGB", size, (200, 10, 30)).save(output, form, **how)
    return output.getvalue()


@pytest.mark.parametrize("size", [(1, 1), (640, 3), (3, 16000)])
@pytest.mark.parametrize(
    ("form", "how"),
    [
        ("PNG", {}),
        ("JPEG", {}),
        ("JPEG", {"progressive": True, "exif": b"Exif\0\0" + b"a" * 100}),
        ("GIF", {}),
        ("BMP", {}),
        ("WEBP", {}),
        ("WEBP", {"lossless": True}),
        ("WEBP", {"exif": b"Exif\0\0abcd"}),
    ],
)
def test_kinds_and_sizes_are_read(form: str, how: dict[str, Any], size: tuple[int, int]):
    assert read_header(encoded(form, size, **how)) == (form.lower(), *size)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no image"),
        (b"RIFF\0\0\0\0WAVEfmt ", "no image"),
        (b"\0\0\0 ftypavif", "no image"),
        (encoded("PNG")[:20], "ends within its header"),
        (encoded("PNG", (1, 1)).replace(b"IHDR", b"IDAT"), "without a header"),
        (encoded("JPEG")[:4], "ends within its header"),
        (b"\xff\xd8\xff\xd9" + bytes(64), "without a frame"),
        (b"\xff\xd8" + b"\xff\xfe\0\2" * 5000, "without a frame"),
        (encoded("JPEG") + b"\xff\xda" * 300, "more than 256 scans"),
        (b"GIF89a\0\0\1\0", "0 x 1 pixels"),
        (b"BM" + bytes(12) + struct.pack("<I", 20), "unknown header"),
        (b"BM" + bytes(12) + struct.pack("<Iii", 40, -5, 5), "0 x 5 pixels"),
        (b"RIFF\0\0\0\0WEBPALPH" + bytes(20), "without an image"),
    ],
)
def test_what_is_no_image_is_told_so(data: bytes, text: str):
    with pytest.raises(ImageError, match=text):
        read_header(data)


@given(st.sampled_from(["PNG", "JPEG", "GIF", "BMP", "WEBP"]), st.data())
def test_any_bytes_are_a_header_or_an_error(form: str, data: st.DataObject):
    image = bytearray(encoded(form))
    for _ in range(data.draw(st.integers(1, 4))):
        image[data.draw(st.integers(0, min(len(image), 64) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ImageError):
        read_header(bytes(image)[: data.draw(st.integers(0, len(image)))])


def png_of(width: int, height: int) -> bytes:
    """Only what a header has: nothing is decoded here."""
    return encoded("PNG", (1, 1))[:16] + struct.pack(">II", width, height)


@pytest.mark.parametrize(
    ("images", "text"),
    [
        ([b"x"], r"images\[0\]: it is no image"),
        ([png_of(1, 1), png_of(1 << 14, (1 << 12) + 1)], r"images\[1\]: 16384 x 4097 pixels are more than"),
        ([png_of(1, (1 << 15) + 1)], "32768 on a side"),
        ([png_of(1 << 13, 1 << 13)] * 3, "more than 128 megapixels together"),
        ([encoded("BMP") + bytes(49 << 20)], "more than 48 MiB together"),
    ],
)
def test_images_that_take_too_much_are_refused(images: list[bytes], text: str):
    with pytest.raises(ApiError, match=text) as caught:
        asyncio.run(prepared_images(images, ImageConverter()))
    assert caught.value.status == 400


def test_others_go_as_they_came():
    images = [encoded("JPEG"), encoded("GIF")]
    assert asyncio.run(prepared_images(images, ImageConverter())) == images


@pytest.mark.parametrize(
    ("places", "num_choices", "text"),
    [
        ([[0, 2]], 1, "does not have"),
        ([[-1]], 1, "does not have"),
        ([[1] * 65], 1, "more than 64 images"),
        ([[0] * 4], 1, "48 MiB"),
        ([[0], [0, 0, 0]], 1, "48 MiB"),
        ([[0]], 4, "48 MiB"),
        ([[1]], 3, "128 megapixels"),
    ],
)
def test_places_and_choices_count_for_the_limits(places: list[list[int]], num_choices: int, text: str):
    images = [encoded("BMP") + bytes(16 << 20), png_of(1 << 13, 1 << 13)]
    check_places(images, [[0, 1], []], 1)
    with pytest.raises(ApiError, match=text) as caught:
        check_places(images, places, num_choices)
    assert caught.value.status == 400
