"""WordPiece vocabularies, which BERT has, of tokenizer.json."""

from __future__ import annotations

from puna.convert.errors import ConversionError
from puna.convert.vocabularies.tokenizer_json import NAME, TokenizerJson, numbered_tokens
from puna.convert.vocabularies.vocabulary import Vocabulary

_PREFIX = "##"
_PRE = "jina-v2-en"
"""What the reference writes for the vocabulary of most of these models. Nothing depends on it."""


def wordpiece_vocabulary(tokenizer: TokenizerJson) -> Vocabulary:
    """Raises ConversionError."""
    prefix = tokenizer.model.continuing_subword_prefix
    if prefix not in (None, _PREFIX):
        raise ConversionError(f"{NAME}: continuing_subword_prefix is {prefix[:40]!r}, not {_PREFIX!r}")
    vocabulary = Vocabulary(model="bert", pre=_PRE, tokens=numbered_tokens(tokenizer.model))
    for added in tokenizer.added_tokens:
        vocabulary.add(added.id, added)
    return vocabulary
