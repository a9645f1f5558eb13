"""How much the data of a PNG unpack to: a few megabytes may hold gigabytes, and llama.cpp takes all of them.

Format: https://www.w3.org/TR/png-3/#5Chunk-layout, #8Interlace, #10Compression.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from puna.worker.images.messages import ImageError

_FIRST_CHUNK = 8
_MOST_CHUNKS = 1 << 16
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""By color type."""
_DEPTHS = (1, 2, 4, 8, 16)
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Of an interlaced image: the first column and row, and how far it is to the next one."""
_MOST_MORE = 1 << 16
"""Behind the last row: decoders leave that out."""
_INPUT_BYTES, _OUTPUT_BYTES = 1 << 16, 1 << 20


def check_png_data(data: bytes) -> None:
    """Raises ImageError for a PNG whose data unpack to more than its header says, are damaged, or are packed
    in another way than the standard's. Takes the time of unpacking them, and no memory.
    """
    try:
        most = _unpacked_bytes(data) + _MOST_MORE
        unpacker = zlib.decompressobj()
        for piece in _image_data(data):
            packed: bytes | memoryview = piece
            while packed and not unpacker.eof:
                most -= len(unpacker.decompress(packed, _OUTPUT_BYTES))
                packed = unpacker.unconsumed_tail
                if most < 0:
                    raise ImageError("it is a PNG with more data than its header says")
    except (struct.error, KeyError, zlib.error):
        raise ImageError("it is a PNG whose data are damaged") from None


def _unpacked_bytes(data: bytes) -> int:
    """Rows of all passes, each with a byte for its filter."""
    width, height, depth, color, _, _, interlace = struct.unpack_from(">IIBBBBB", data, _FIRST_CHUNK + 8)
    if depth not in _DEPTHS:
        raise ImageError(f"it is a PNG of {depth} bits")
    num_bits = depth * _CHANNELS[color]
    passes = _PASSES if interlace else ((0, 0, 1, 1),)
    total = 0
    for column, row, columns_on, rows_on in passes:
        num_columns = -(-max(width - column, 0) // columns_on)
        num_rows = -(-max(height - row, 0) // rows_on)
        total += num_rows * (1 + -(-num_columns * num_bits // 8)) if num_columns else 0
    return total


def _image_data(data: bytes) -> Iterator[memoryview]:
    """In pieces, those of several chunks one behind the other."""
    position, view = _FIRST_CHUNK, memoryview(data)
    for _ in range(_MOST_CHUNKS):
        length, kind = struct.unpack_from(">I4s", data, position)
        if kind == b"IEND":
            return
        if kind == b"CgBI":
            raise ImageError("it is a PNG in a form of Apple's own")
        if kind == b"IDAT":
            for start in range(position + 8, position + 8 + length, _INPUT_BYTES):
                yield view[start : min(start + _INPUT_BYTES, position + 8 + length)]
        position += 12 + length
    raise ImageError(f"it is a PNG with more than {_MOST_CHUNKS} chunks")
