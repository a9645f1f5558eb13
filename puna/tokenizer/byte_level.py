"""GPT-2's printable alphabet: every byte has a character, so that any bytes can be written as text."""

from __future__ import annotations

import re

from puna.tokenizer.errors import TokenizerError

_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")


def _alphabet() -> list[str]:
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    substitutes = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(substitutes)) for byte in range(256)]


BYTE_TO_CHAR = _alphabet()
CHAR_TO_BYTE = {char: byte for byte, char in enumerate(BYTE_TO_CHAR)}


def decode_text(text: str) -> bytes:
    """The bytes that `text` stands for; a character outside the alphabet stands for itself."""
    try:
        return bytes([CHAR_TO_BYTE[char] for char in text])
    except KeyError:
        return b"".join(
            bytes([CHAR_TO_BYTE[char]]) if char in CHAR_TO_BYTE else raw_bytes(char) for char in text
        )


def raw_bytes(text: str) -> bytes:
    """The bytes of a token's text as the file has them, valid UTF-8 or not."""
    return text.encode("utf-8", "surrogateescape")


def byte_value(text: str) -> int:
    """Of a byte token, "<0x0A>". Raises TokenizerError."""
    match = _BYTE_TOKEN.fullmatch(text)
    if match is None:
        raise TokenizerError(f"tokenizer.ggml.tokens: {text!r} is marked as a byte but is not one")
    return int(match[1], 16)
