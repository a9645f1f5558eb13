"""From texts to the tokens that their embeddings are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from puna.chat.errors import PromptError

if TYPE_CHECKING:  # who only asks for inputs need not load it
    from puna.tokenizer import Tokenizer

_TOO_LONG = "the input length exceeds the context length"
NO_ROOM = "input after truncation exceeds maximum context length"
_EMPTY = "an input is empty, and the model puts no token of its own before it"


class InputsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Texts, each an input of its own."""

    texts: list[str]
    context_length: int
    """Tokens of an input at most, those that begin and end it included."""
    truncate: bool
    """Whether the end of an input may be left out to make it fit."""

    @property
    def num_chars(self) -> int:
        return sum(map(len, self.texts))


def encode_inputs(request: InputsRequest, tokenizer: Tokenizer) -> list[list[int]]:
    """Of each text, as the model wants texts to begin and to end. Raises PromptError."""
    return [_encode(text, request, tokenizer) for text in request.texts]


def _encode(text: str, request: InputsRequest, tokenizer: Tokenizer) -> list[int]:
    tokens = tokenizer.encode(text, add_special=False)
    begin, end = _missing(tokenizer.begin_id, tokens[:1]), _missing(tokenizer.end_id, tokens[-1:])
    room = request.context_length - len(begin) - len(end)
    if room <= 0:
        raise PromptError(NO_ROOM)
    if len(tokens) > room:
        if not request.truncate:
            raise PromptError(_TOO_LONG)
        tokens = tokens[:room]
        if not end and tokenizer.end_id is not None:  # it was cut off
            tokens[-1] = tokenizer.end_id
    if not (whole := [*begin, *tokens, *end]):
        raise PromptError(_EMPTY)
    return whole


def _missing(token: int | None, there: list[int]) -> list[int]:
    """What is to be added for the token to be there."""
    return [] if token is None or there == [token] else [token]
