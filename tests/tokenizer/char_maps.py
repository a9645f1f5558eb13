"""SentencePiece's precompiled maps of characters, made for tests."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

REPLACEMENTS = {
    **{
        "ﬁ": "fi",
        "Ａ": "A",
        "ａ": "a",
        "½": "1⁄2",
        "™": "TM",
        "e\u0301": "é",
        "o\u0308": "ö",
        "<\u0338": "≮",
    },
    **{
        "\t": " ",
        "\n": " ",
        "\u00a0": " ",
        "\u3000": " ",
        "\u2028": " ",
        "　 ": " ",
        "\u200d": "",
        "\x00": "",
    },
    **{"ﷺ": "صلى الله عليه وسلم", "Ⅷ": "VIII", "①": "1", "ﾊﾟ": "パ", "ﾊ": "ハ", "㍿": "株式会社"},
}
_BLOCK = 256  # room for the children of one node


def compiled(replacements: Mapping[str, str] = REPLACEMENTS) -> bytes:
    """A double array in which each node's children have a block of their own, and the texts behind it."""
    texts = bytearray()
    offsets = {}
    for replacement in replacements.values():
        offsets[replacement] = len(texts)
        texts += replacement.encode() + b"\0"
    values = {
        key.encode(): offsets[replacement] for key, replacement in replacements.items() if "\0" not in key
    }
    prefixes = sorted({key[:length] for key in values for length in range(len(key) + 1)})
    block_of = {prefix: (number + 1) * _BLOCK for number, prefix in enumerate(prefixes)}
    units = np.zeros((len(prefixes) + 1) * _BLOCK, np.uint32)
    for prefix in prefixes:
        index = block_of[prefix[:-1]] + prefix[-1] if prefix else 0
        ends = prefix in values
        label = prefix[-1] if prefix else 0
        units[index] = (index ^ block_of[prefix]) << 10 | ends << 8 | label
        if ends:
            units[block_of[prefix]] = 1 << 31 | values[prefix]
    return struct.pack("<I", units.nbytes) + units.tobytes() + bytes(texts)
