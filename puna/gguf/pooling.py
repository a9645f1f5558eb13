"""How the hidden states of a text's tokens become one vector, as files say it."""

from __future__ import annotations

from typing import Literal, TypeAlias

Pooling: TypeAlias = Literal["mean", "cls", "last"]
"""The mean of all tokens', the first token's, or the last token's."""

POOLING_TYPES: tuple[Pooling | None, ...] = ("last", "mean", "cls", "last", None)
"""By the number that `<architecture>.pooling_type` has. The first says nothing: the last token has seen all
others, so it stands for the text. None: the model ranks texts instead.
"""
