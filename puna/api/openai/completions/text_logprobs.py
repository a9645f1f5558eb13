"""Log-probabilities in the shape that /v1/completions has: lists side by side."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

import msgspec

from puna.api.ollama.reply import token_text
from puna.engine.request import TokenLogprob


class TextLogprobs(msgspec.Struct):
    """One entry per token in each list; text_offset: where the token begins, in characters of the text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextLogprobLists:
    """Makes them for the pieces of one choice."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._num_chars = 0

    def take(self, logprobs: Sequence[TokenLogprob]) -> TextLogprobs:
        """logprobs: of the tokens that come next."""
        return TextLogprobs(
            tokens=[token_text(item) for item in logprobs],
            token_logprobs=[item.logprob for item in logprobs],
            top_logprobs=[_alternatives(item) for item in logprobs],
            text_offset=[self._offset(item) for item in logprobs],
        )

    def _offset(self, item: TokenLogprob) -> int:
        offset = self._num_chars
        self._num_chars += len(self._decoder.decode(item.bytes))
        return offset


def _alternatives(item: TokenLogprob) -> dict[str, float]:
    """The token that was drawn is always among them."""
    return {token_text(item): item.logprob} | {token_text(other): other.logprob for other in item.top}
