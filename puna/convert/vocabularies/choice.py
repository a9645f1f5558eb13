"""Which of a directory's tokenizers is the model's."""

from __future__ import annotations

import re
from typing import Any

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.family import Family
from puna.convert.sources.files import Files
from puna.convert.vocabularies import sentencepiece, tokenizer_json, unigram
from puna.convert.vocabularies.sentencepiece import read_sentencepiece
from puna.convert.vocabularies.special import CONFIG, special_values
from puna.convert.vocabularies.tokenizer_json import (
    TokenizerJson,
    bpe_vocabulary,
    normalizer_values,
    read_tokenizer_json,
)
from puna.convert.vocabularies.vocabulary import AddedToken, Vocabulary
from puna.convert.vocabularies.wordpiece import wordpiece_vocabulary
from puna.gguf.writer import GgufValue, uint32
from puna.tokenizer.kinds import TokenKind

GENERATION = "generation_config.json"
_NUMBER = re.compile(r"\d{1,9}")
_WITHOUT_PREFIX = ("gemma2", "gemma3")
"""Gemma's texts get no space before them, and its files do not say so."""


def vocabulary_values(files: Files, config: Config, family: Family, size: int) -> dict[str, GgufValue]:
    """All `tokenizer.*` metadata; size: of the embedding. SentencePiece's own file goes first, as in
    llama.cpp's converter: it has the scores. Raises ConversionError.
    """
    tokenizer = read_tokenizer_json(files) if tokenizer_json.NAME in files else None
    if sentencepiece.NAME in files:
        vocabulary = _of_sentencepiece(files, family.unused_tokens)
    elif unigram.SENTENCEPIECE in files:
        vocabulary = unigram.read_unigram(files)
    elif tokenizer is not None:
        vocabulary = _of_tokenizer_json(tokenizer, files)
    else:
        raise ConversionError(f"neither {sentencepiece.NAME} nor {tokenizer_json.NAME} is there")
    if vocabulary.model == "llama" and family.architecture in _WITHOUT_PREFIX:
        vocabulary.add_space_prefix = False
    special = special_values(files, config, vocabulary, tokenizer, size, family.special_tokens)
    values = {**vocabulary.values(size), **special, **_ends(files, config, family)}
    if tokenizer is not None:
        values |= normalizer_values(tokenizer)
    if family.has_token_types:
        values["tokenizer.ggml.token_type_count"] = uint32(config.integer("type_vocab_size", default=1))
    return values


def _of_tokenizer_json(tokenizer: TokenizerJson, files: Files) -> Vocabulary:
    kind = tokenizer.model.type
    if kind == "BPE":
        return bpe_vocabulary(tokenizer)
    if kind == "WordPiece":
        return wordpiece_vocabulary(tokenizer)
    if kind == "Unigram":
        return unigram.unigram_vocabulary(tokenizer, files.object(CONFIG))
    raise ConversionError(f"{tokenizer_json.NAME}: models of type {kind[:40]!r} are not supported")


def _ends(files: Files, config: Config, family: Family) -> dict[str, GgufValue]:
    """Of families whose files name other tokens than those that end texts and replies."""
    values: dict[str, GgufValue] = {}
    if family.eos_key and (eos := config.token_id(family.eos_key)) is not None:
        values["tokenizer.ggml.eos_token_id"] = uint32(eos)
        ends = files.object(GENERATION).get("eos_token_id")
        if isinstance(ends, list) and len(ends) > 1 and type(ends[0]) is int and ends[0] >= 0:
            values["tokenizer.ggml.eot_token_id"] = uint32(ends[0])
    return values


def _of_sentencepiece(files: Files, unused: str) -> Vocabulary:
    vocabulary = read_sentencepiece(files)
    for token in vocabulary.tokens.values():
        if unused and token.text.startswith(unused):
            token.kind = TokenKind.UNUSED
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
