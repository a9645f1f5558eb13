"""How the hidden states of a text's tokens become one vector."""

from __future__ import annotations

from typing import Literal, TypeAlias

Pooling: TypeAlias = Literal["mean", "cls", "last"]
"""The mean of all tokens', the first token's, or the last token's."""
