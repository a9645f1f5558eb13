"""PNGs whose data are more than their headers say."""

from __future__ import annotations

import asyncio
import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image

from puna.api.errors import ApiError
from puna.api.images.checking import prepared_images
from puna.api.images.png_data import check_png_data
from puna.daemon.images import ImageConverter
from puna.worker.images.messages import ImageError

pytestmark = pytest.mark.unit


def chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def png(size: tuple[int, int], *chunks: bytes, depth: int = 8, color: int = 2, interlace: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", *size, depth, color, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IEND", b"")


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "I;16"])
def test_what_is_right_passes(mode: str):
    pixels = np.random.default_rng(0).integers(0, 256, (67, 301, 3), np.uint8)
    output = io.BytesIO()
    Image.fromarray(pixels).convert("I" if mode == "I;16" else mode).convert(mode).save(output, "PNG")
    check_png_data(output.getvalue())


@pytest.mark.parametrize(
    ("depth", "color", "interlace", "num_bytes"),
    [
        (1, 0, 0, 7 * (1 + 2)),
        (16, 6, 0, 7 * (1 + 9 * 8)),
        # Passes of 2 x 1, 1 x 1, 3 x 1, 2 x 2, 5 x 2, 4 x 4 and 9 x 3 pixels.
        (8, 2, 1, 7 + 4 + 10 + 2 * 7 + 2 * 16 + 4 * 13 + 3 * 28),
        (1, 3, 1, 2 + 2 + 2 + 2 * 2 + 2 * 2 + 4 * 2 + 3 * 3),
    ],
)
def test_more_than_its_rows_and_a_little_is_refused(depth: int, color: int, interlace: int, num_bytes: int):
    def of_length(length: int) -> bytes:
        packed = zlib.compress(bytes(length))
        parts = chunk(b"IDAT", packed[:9]), chunk(b"tEXt", b"x"), chunk(b"IDAT", packed[9:])
        return png((9, 7), *parts, depth=depth, color=color, interlace=interlace)

    most = num_bytes + (1 << 16)
    check_png_data(of_length(most))
    with pytest.raises(ImageError, match="more data than its header says"):
        check_png_data(of_length(most + 1))


def test_a_bomb_is_found_without_the_memory_for_it():
    packer = zlib.compressobj()
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()
    bomb = png((4096, 4096), chunk(b"IDAT", packed), depth=8, color=2)
    images = [png((1, 1), chunk(b"IDAT", b"")), bomb]
    tracemalloc.start()
    with pytest.raises(ApiError, match=r"images\[1\]: it is a PNG with more data") as caught:
        asyncio.run(prepared_images(images, ImageConverter()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert caught.value.status == 400
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (png((1, 1), chunk(b"IDAT", b"no zlib")), "damaged"),
        (png((1, 1), chunk(b"IDAT", zlib.compress(bytes(4))))[:-20], "damaged"),
        (png((1, 1), color=5), "damaged"),
        (png((1, 1), depth=255), "of 255 bits"),
        (png((1, 1), chunk(b"CgBI", b"")), "Apple"),
        (png((1, 1), *[chunk(b"IDAT", b"")] * 65536), "more than 65536 chunks"),
    ],
)
def test_what_no_decoder_should_see(data: bytes, text: str):
    with pytest.raises(ImageError, match=text):
        check_png_data(data)
