"""What an image is and how large, from its first bytes: nothing here decodes one.

PNG: https://www.w3.org/TR/png-3/#11IHDR. JPEG: ITU-T T.81, annex B. GIF: the logical screen descriptor of
https://www.w3.org/Graphics/GIF/spec-gif89a.txt. BMP: the DIB headers of Windows. WebP: RFC 9649.
"""

from __future__ import annotations

import struct
from typing import Literal, NamedTuple

from puna.worker.images.messages import ImageError

Kind = Literal["png", "jpeg", "gif", "bmp", "webp"]

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG's markers that begin a frame."""
_STANDALONE = frozenset([0x01, *range(0xD0, 0xD9)])
"""JPEG's markers that no length follows."""
_SCAN = b"\xff\xda"
_MOST_SEGMENTS = 4096
"""Before a JPEG's frame."""
_MOST_SCANS = 256
"""Of a JPEG, those of previews in it included: each may take the time of a whole image in few bytes."""


class ImageHeader(NamedTuple):
    """What an image says of itself."""

    kind: Kind
    width: int
    height: int


def read_header(data: bytes) -> ImageHeader:
    """Raises ImageError."""
    try:
        if data.startswith(_PNG):
            header = ImageHeader("png", *_png(data))
        elif data.startswith(_JPEG):
            header = ImageHeader("jpeg", *_jpeg(data))
        elif data.startswith((b"GIF87a", b"GIF89a")):
            header = ImageHeader("gif", *struct.unpack_from("<HH", data, 6))
        elif data.startswith(b"BM"):
            header = ImageHeader("bmp", *_bmp(data))
        elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            header = ImageHeader("webp", *_webp(data))
        else:
            raise ImageError("it is no image in PNG, JPEG, GIF, BMP or WebP")
    except struct.error:
        raise ImageError("it ends within its header") from None
    if not header.width or not header.height:
        raise ImageError(f"it has {header.width} x {header.height} pixels")
    return header


def _png(data: bytes) -> tuple[int, int]:
    kind, width, height = struct.unpack_from(">4sII", data, 12)
    if kind != b"IHDR":
        raise ImageError("it is a PNG without a header")
    return width, height


def _jpeg(data: bytes) -> tuple[int, int]:
    """Of the first frame, behind any number of other segments."""
    if data.count(_SCAN) > _MOST_SCANS:
        raise ImageError(f"it is a JPEG with more than {_MOST_SCANS} scans")
    position = 2
    for _ in range(_MOST_SEGMENTS):
        lead, marker = struct.unpack_from("BB", data, position)
        if lead != 0xFF:
            break
        if marker == 0xFF or marker in _STANDALONE:  # bytes 0xff may fill
            position += 1 if marker == 0xFF else 2
            continue
        (length,) = struct.unpack_from(">H", data, position + 2)
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        position += 2 + length
    raise ImageError("it is a JPEG without a frame")


def _bmp(data: bytes) -> tuple[int, int]:
    """A negative height is that of an image whose first row is at the top."""
    (size,) = struct.unpack_from("<I", data, 14)
    if size == 12:
        width, height = struct.unpack_from("<HH", data, 18)
        return width, height
    if size < 40:
        raise ImageError("it is a BMP with an unknown header")
    width, height = struct.unpack_from("<ii", data, 18)
    return max(width, 0), abs(height)


def _webp(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            low, middle, high = struct.unpack_from("<3H", data, 24)  # two numbers of 24 bits
            return 1 + low + ((middle & 0xFF) << 16), 1 + (middle >> 8) + (high << 8)
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
    raise ImageError("it is a WebP without an image")
