"""What kinds of tokens there are, and what else is known of each."""

from __future__ import annotations

from enum import IntEnum, IntFlag


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
STRIPS_SPACE_BEFORE = 32


class Convention(IntFlag):
    """Settings of a tokenizer besides its tokens, as in native/vocabulary/format.h."""

    ADD_BOS = 1
    ADD_EOS = 2
    ADD_SEPARATOR = 4
    """Between two texts."""
    ADD_SPACE_PREFIX = 8
    """In front of text that follows nothing or a special token."""
    WHOLE_WORDS = 16
    """A word that is a token is that token, whatever the merges would make of it."""
    LOWERCASE = 32
    STRIP_ACCENTS = 64
    END_WITH_SEPARATOR = 128
    """Whatever is said of EOS."""
    MERGE_SPACES = 256
    """Of several in a row one stays, and words begin with one."""
    WRITE_SPACES = 512
    """As U+2581."""
    WHOLE_NEWLINES = 1024
    """As WHOLE_WORDS, of words of newlines."""
    BEGIN_WITH_SPACE = 2048
    """Each word."""
    DROP_SPACES = 4096
    """Words of white space."""
