"""Compressed bodies: no more comes out of them than may come."""

from __future__ import annotations

import zlib

from puna.api.errors import ApiError

_GZIP = 16 + zlib.MAX_WBITS
_ZSTD_WINDOW = 8 << 20
"""What every decoder has to support, by RFC 8878; more is memory for nothing."""
ENCODINGS = ("gzip", "deflate", "zstd")


def decompress(body: bytes | bytearray, encoding: str, most_bytes: int) -> bytes:
    """At most one byte more than `most_bytes`. ApiError: 415 for an unknown encoding, 400 for broken data."""
    try:
        match encoding:
            case "gzip" | "x-gzip":
                return _inflate(body, most_bytes + 1, _GZIP)
            case "deflate":  # in zlib's frame, by RFC 9110
                return _inflate(body, most_bytes + 1, zlib.MAX_WBITS)
            case "zstd":
                return _unzstd(body, most_bytes + 1)
    except (zlib.error, EOFError) as error:
        raise ApiError(400, f"invalid {encoding} data in the request body") from error
    raise ApiError(415, f"unsupported content encoding: {encoding[:40]!r} (try {' or '.join(ENCODINGS)})")


def _inflate(body: bytes | bytearray, most_bytes: int, window_bits: int) -> bytes:
    decoder = zlib.decompressobj(window_bits)
    data = decoder.decompress(body, most_bytes)
    if not decoder.eof and len(data) < most_bytes:
        raise EOFError
    return data


def _unzstd(body: bytes | bytearray, most_bytes: int) -> bytes:
    import zstandard  # few clients need it

    try:
        with zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).stream_reader(bytes(body)) as reader:
            return reader.read(most_bytes)
    except zstandard.ZstdError as error:
        raise EOFError from error
