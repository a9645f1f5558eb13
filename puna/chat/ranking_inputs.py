"""A query and documents as the tokens that a model ranks them by, put together as llama.cpp does it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from puna.chat.embedding_inputs import NO_ROOM
from puna.chat.errors import PromptError

if TYPE_CHECKING:  # who only asks for pairs need not load it
    from puna.tokenizer import Tokenizer

_QUERY, _DOCUMENT = "{query}", "{document}"


class PairsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Each document with the query is an input of its own."""

    query: str
    documents: list[str]
    context_length: int
    """Tokens of an input at most. The end of a document is left out to make it fit."""

    @property
    def num_chars(self) -> int:
        return sum(map(len, self.documents)) + len(self.query) * len(self.documents)


def encode_pairs(request: PairsRequest, tokenizer: Tokenizer, template: str | None) -> list[list[int]]:
    """template: with places for the query and a document; None: the model's own tokens stand between and
    around them. Raises PromptError if the query alone does not fit.
    """
    if template is not None:
        return [_filled(template, document, request, tokenizer) for document in request.documents]
    query = tokenizer.encode(request.query, add_special=False, parse_special=False)
    before = [*_present(tokenizer.bos_id, tokenizer.add_bos), *query]
    eos = tokenizer.separator_id if tokenizer.eos_id is None else tokenizer.eos_id
    end = _present(eos, tokenizer.add_eos)
    before += [*end, *_present(tokenizer.separator_id, tokenizer.add_separator)]
    room = request.context_length - len(before) - len(end)
    if room <= 0:
        raise PromptError(NO_ROOM)
    documents = (
        tokenizer.encode(document, add_special=False, parse_special=False) for document in request.documents
    )
    return [[*before, *document[:room], *end] for document in documents]


def _present(token: int | None, wanted: bool) -> list[int]:
    return [token] if wanted and token is not None else []


def _filled(template: str, document: str, request: PairsRequest, tokenizer: Tokenizer) -> list[int]:
    """What the template has in it may be special tokens, and what texts have in them, too."""
    while True:
        tokens = tokenizer.encode(_rendered(template, request.query, document), add_special=False)
        if (too_many := len(tokens) - request.context_length) <= 0:
            return tokens
        if not document:
            raise PromptError(NO_ROOM)
        kept = tokenizer.encode(document, add_special=False)[: -too_many - 1]
        document = tokenizer.decode(kept)[: len(document) - 1]


def _rendered(template: str, query: str, document: str) -> str:
    """Places in the texts themselves are none."""
    return document.join(part.replace(_QUERY, query) for part in template.split(_DOCUMENT))
