"""What kinds of tokens there are, and what else is known of each."""

from __future__ import annotations

from enum import IntEnum


class TokenKind(IntEnum):
    """As numbered in `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# A token's traits are its kind and these bits, as in native/vocabulary/format.h.
KIND_MASK = 7
ENDS_GENERATION = 8
STRIPS_SPACE_AFTER = 16
"""A special token that swallows the whitespace behind it."""
