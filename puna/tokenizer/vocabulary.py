"""The tokens of a model: their texts, their kinds, and the few that mean something to the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class TokenKind(IntEnum):
    """As numbered in `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """Immutable; ids are positions in `texts`."""

    texts: list[str]
    kinds: bytes
    """The TokenKind of each."""
    ids: Mapping[str, int]
    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    end_of_generation: frozenset[int]
    add_bos: bool
    add_eos: bool
    strips_space_after: frozenset[int]
    """Special tokens that swallow the whitespace behind them."""

    def of_kind(self, *kinds: TokenKind) -> list[int]:
        """Ascending."""
        return np.flatnonzero(np.isin(np.frombuffer(self.kinds, np.uint8), kinds)).tolist()

    def __len__(self) -> int:
        return len(self.texts)
