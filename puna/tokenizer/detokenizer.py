"""Token ids to text, as they come."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class Detokenizer:
    """Never gives half a character; bytes that are no UTF-8 become U+FFFD; control tokens give nothing."""

    def __init__(self, visible_bytes: Callable[[int], bytes]) -> None:
        self._visible_bytes = visible_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """The text that is certain now; "" while a character is incomplete. TokenizerError: no such token."""
        return self._decoder.decode(self._visible_bytes(token))

    def flush(self) -> str:
        """What is left at the end: U+FFFD for an incomplete character."""
        return self._decoder.decode(b"", final=True)
