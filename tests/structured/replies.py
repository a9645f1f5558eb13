"""Whether a reply is what its schema asks for, or may still become that."""

from __future__ import annotations

import json
import random
import re
import sys
from typing import Any

import jsonschema_rs
import llguidance

_ENDS = b'}],:ntfaulserd01-.5"{['
"""Bytes that tend to bring JSON to its end where no text is, the best first; now and then another is needed,
as in numbers that must be more than 1.0."""
_MOST_BYTES = 4000


def fits(schema: dict[str, Any], text: str) -> bool:
    """By another implementation than the one that held the reply to the schema."""
    return bool(jsonschema_rs.validator_for(schema).is_valid(json.loads(text, parse_float=_nearest)))


def _nearest(number: str) -> float:
    """JSON knows no largest number."""
    return min(max(float(number), -sys.float_info.max), sys.float_info.max)


def completed(grammar: str, text: str) -> str:
    """A beginning of what a grammar accepts, brought to an end. Fails if it cannot be one."""
    matcher = llguidance.LLMatcher(BYTES, grammar)
    written = bytearray(text.encode())
    most = len(written) + _MOST_BYTES
    assert matcher.try_consume_tokens(list(written)) == len(written), f"not a beginning: {text!r}"
    any_byte = random.Random(0)
    while not matcher.is_accepting():
        assert len(written) < most, f"does not end: {bytes(written)!r}"
        mask = matcher.compute_bitmask()
        allowed = bytes(byte for byte in range(256) if mask[byte // 8] >> byte % 8 & 1)
        wanted = b'"' if _is_in_text(written) else _ENDS if len(written) % 8 else b""
        byte = next((byte for byte in wanted if byte in allowed), None) or any_byte.choice(allowed)
        assert matcher.consume_token(byte)
        written.append(byte)
    return written.decode()


def _is_in_text(written: bytes) -> bool:
    """Of JSON."""
    return len(re.findall(rb'(?<!\\)(?:\\\\)*"', written)) % 2 == 1


class _ByteVocabulary:
    eos_token_id = 256
    bos_token_id = None
    tokens = (*(bytes([value]) for value in range(256)), b"<end>")
    special_token_ids = (256,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


BYTES = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_ByteVocabulary()))
END = _ByteVocabulary.eos_token_id
