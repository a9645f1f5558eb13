"""Which of a directory's tokenizers is the model's."""

from __future__ import annotations

import re
from typing import Any

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.sources.files import Files
from puna.convert.vocabularies import sentencepiece, tokenizer_json
from puna.convert.vocabularies.sentencepiece import read_sentencepiece
from puna.convert.vocabularies.special import CONFIG, special_values
from puna.convert.vocabularies.tokenizer_json import read_tokenizer_json, vocabulary_of
from puna.convert.vocabularies.vocabulary import AddedToken, Vocabulary
from puna.gguf.writer import GgufValue

_NUMBER = re.compile(r"\d{1,9}")
_WITHOUT_PREFIX = ("gemma2", "gemma3")
"""Gemma's texts get no space before them, and its files do not say so."""


def vocabulary_values(files: Files, config: Config, architecture: str, size: int) -> dict[str, GgufValue]:
    """All `tokenizer.*` metadata; size: of the embedding. SentencePiece's own file goes first, as in
    llama.cpp's converter: it has the scores. Raises ConversionError.
    """
    tokenizer = read_tokenizer_json(files) if tokenizer_json.NAME in files else None
    if sentencepiece.NAME in files:
        vocabulary = _of_sentencepiece(files)
    elif tokenizer is not None:
        vocabulary = vocabulary_of(tokenizer)
    else:
        raise ConversionError(f"neither {sentencepiece.NAME} nor {tokenizer_json.NAME} is there")
    if vocabulary.model == "llama" and architecture in _WITHOUT_PREFIX:
        vocabulary.add_space_prefix = False
    special = special_values(files, config, vocabulary, tokenizer, size)
    return {**vocabulary.values(size), **special}


def _of_sentencepiece(files: Files) -> Vocabulary:
    vocabulary = read_sentencepiece(files)
    settings = files.object(CONFIG)
    prefix = settings.get("add_prefix_space")
    if isinstance(prefix, bool):
        vocabulary.add_space_prefix = prefix
    decoder = settings.get("added_tokens_decoder", {})
    if not isinstance(decoder, dict):
        raise ConversionError(f"{CONFIG}: added_tokens_decoder is no object")
    for number, entry in decoder.items():
        vocabulary.add(_number(number), _added_token(entry))
    return vocabulary


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ConversionError(f"{CONFIG}: {text[:40]!r} is no number of a token")
    return int(text)


def _added_token(entry: Any) -> AddedToken:
    if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
        raise ConversionError(f"{CONFIG}: a token in added_tokens_decoder has no content")
    return AddedToken(entry["content"], entry.get("special") is True)
