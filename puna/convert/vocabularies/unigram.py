"""Unigram vocabularies, which XLM-RoBERTa has: of SentencePiece's own file, or of tokenizer.json."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from puna.convert.errors import ConversionError
from puna.convert.sources.files import Files, decoded
from puna.convert.vocabularies.sentencepiece import UNIGRAM, read_model
from puna.convert.vocabularies.tokenizer_json import NAME, TokenizerJson, parts
from puna.convert.vocabularies.vocabulary import MAX_TOKENS, Token, Vocabulary
from puna.gguf.writer import GgufValue, array, boolean
from puna.tokenizer.kinds import TokenKind

SENTENCEPIECE = "sentencepiece.bpe.model"
"""In spite of its name."""

_FIRST = (
    Token("<s>", TokenKind.CONTROL),
    Token("<pad>", TokenKind.CONTROL),
    Token("</s>", TokenKind.CONTROL),
    Token("<unk>", TokenKind.UNKNOWN),
)
"""XLM-RoBERTa's own, in place of SentencePiece's first three: all others' numbers are larger by one."""


def read_unigram(files: Files) -> Vocabulary:
    """Of SentencePiece's file. Raises ConversionError."""
    model = read_model(files, SENTENCEPIECE)
    if model.model_type not in (None, UNIGRAM):
        raise ConversionError(f"{SENTENCEPIECE} is no Unigram model; others are not supported")
    pieces = [*_FIRST, *(model.tokens[number] for number in range(3, len(model.tokens)))]
    vocabulary = Vocabulary(model="t5", pre="default", tokens=dict(enumerate(pieces)))
    vocabulary.add_space_prefix = model.add_space_prefix
    vocabulary.normalizing = _normalizing(model.charsmap, model.remove_extra_whitespaces)
    return vocabulary


def unigram_vocabulary(tokenizer: TokenizerJson, settings: dict[str, Any]) -> Vocabulary:
    """settings: of tokenizer_config.json. Raises ConversionError."""
    pieces = decoded(f"{NAME}: vocab", bytes(tokenizer.model.vocab), list[tuple[str, float]])
    if len(pieces) > MAX_TOKENS:
        raise ConversionError(f"{NAME} has more than {MAX_TOKENS} tokens")
    tokens = {number: Token(text, score=score) for number, (text, score) in enumerate(pieces)}
    vocabulary = Vocabulary(model="t5", pre="default", tokens=tokens)
    for added in tokenizer.added_tokens:
        vocabulary.check_id(added.id)
        token = tokens.setdefault(added.id, Token(added.content))
        token.kind = TokenKind.CONTROL if added.special else TokenKind.USER_DEFINED
    if tokenizer.model.unk_id in tokens:
        tokens[tokenizer.model.unk_id].kind = TokenKind.UNKNOWN
    vocabulary.add_space_prefix = settings.get("add_prefix_space") is not False
    removes = settings.get("clean_up_tokenization_spaces") is not False
    vocabulary.normalizing = _normalizing(_charsmap(tokenizer), removes)
    return vocabulary


def _charsmap(tokenizer: TokenizerJson) -> bytes:
    for part in parts(tokenizer.normalizer, "normalizers"):
        text = part.get("precompiled_charsmap")
        if isinstance(text, str):
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise ConversionError(f"{NAME}: precompiled_charsmap: {error}") from error
    return b""


def _normalizing(charsmap: bytes, removes_extra_whitespaces: bool) -> dict[str, GgufValue]:
    values = {"tokenizer.ggml.remove_extra_whitespaces": boolean(removes_extra_whitespaces)}
    if charsmap:
        values["tokenizer.ggml.precompiled_charsmap"] = array("uint8", list(charsmap))
    return values
