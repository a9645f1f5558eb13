"""How the hidden states of a text's tokens become one vector, as files say it."""

from __future__ import annotations

from typing import Literal, TypeAlias

Pooling: TypeAlias = Literal["mean", "cls", "last", "rank"]
"""The mean of all tokens', the first token's, or the last token's; or the scores of a model that ranks texts.
"""

POOLING_TYPES: tuple[Pooling | None, ...] = (None, "mean", "cls", "last", "rank")
"""By the number that `<architecture>.pooling_type` has. None: the file says nothing."""
