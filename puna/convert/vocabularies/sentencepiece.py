"""tokenizer.model: a vocabulary as SentencePiece stores it.

Format: sentencepiece_model.proto of the sentencepiece project.
"""

from __future__ import annotations

import struct

import msgspec

from puna.convert.errors import ConversionError
from puna.convert.sources.files import Files
from puna.convert.vocabularies.protobuf import fields
from puna.convert.vocabularies.vocabulary import MAX_TOKENS, Token, Vocabulary
from puna.tokenizer.kinds import TokenKind

NAME = "tokenizer.model"
_ADDED = "added_tokens.json"
_MAX_BYTES = 64 << 20

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # of the model
_TEXT, _SCORE, _KIND = 1, 2, 3  # of a piece
_MODEL_TYPE, _BPE, UNIGRAM = 3, 2, 1  # of the trainer, and its values; without one it is Unigram
_CHARSMAP, _PREFIX, _REMOVE = 2, 3, 4  # of the normalizer
_KINDS = {
    1: TokenKind.NORMAL,
    2: TokenKind.UNKNOWN,
    3: TokenKind.CONTROL,
    4: TokenKind.USER_DEFINED,
    5: TokenKind.UNUSED,
    6: TokenKind.BYTE,
}


class SentencePieceModel(msgspec.Struct):
    """What its file says."""

    tokens: dict[int, Token]
    model_type: int | None = None
    charsmap: bytes = b""
    """How characters are replaced before anything else, compiled."""
    add_space_prefix: bool = True
    remove_extra_whitespaces: bool = True


def read_model(files: Files, name: str) -> SentencePieceModel:
    """Raises ConversionError."""
    model = SentencePieceModel({})
    for number, value in fields(memoryview(files.read(name, _MAX_BYTES)), name):
        if not isinstance(value, memoryview):
            continue
        if number == _PIECES:
            if len(model.tokens) == MAX_TOKENS:
                raise ConversionError(f"{name} has more than {MAX_TOKENS} tokens")
            model.tokens[len(model.tokens)] = _piece(value, name)
        elif number == _TRAINER:
            model_type = dict(fields(value, name)).get(_MODEL_TYPE)
            model.model_type = model_type if isinstance(model_type, int) else None
        elif number == _NORMALIZER:
            said = dict(fields(value, name))
            charsmap = said.get(_CHARSMAP)
            model.charsmap = bytes(charsmap) if isinstance(charsmap, memoryview) else b""
            model.add_space_prefix = bool(said.get(_PREFIX, 1))
            model.remove_extra_whitespaces = bool(said.get(_REMOVE, 1))
    return model


def read_sentencepiece(files: Files) -> Vocabulary:
    """With what added_tokens.json adds. Raises ConversionError."""
    model = read_model(files, NAME)
    if model.model_type != _BPE:
        raise ConversionError(f"{NAME} is no BPE model; others are not supported")
    vocabulary = Vocabulary(model="llama", pre="default", tokens=model.tokens)
    if _ADDED in files:
        for content, token in files.json(_ADDED, dict[str, int]).items():
            vocabulary.check_id(token)
            model.tokens[token] = Token(content, TokenKind.USER_DEFINED, -1000.0)
    return vocabulary


def _piece(message: memoryview, name: str) -> Token:
    token = Token("")
    for number, value in fields(message, name):
        if number == _TEXT and isinstance(value, memoryview):
            token.text = bytes(value).decode(errors="replace")
        elif number == _SCORE and isinstance(value, memoryview) and len(value) == 4:
            (token.score,) = struct.unpack("<f", value)
        elif number == _KIND:
            kind = _KINDS.get(value) if isinstance(value, int) else None
            if kind is None:
                raise ConversionError(f"{name}: a token has a kind that is not known")
            token.kind = kind
    # The reference leaves those that a user defined to be found as words.
    if token.kind is TokenKind.USER_DEFINED:
        token.kind = TokenKind.NORMAL
    return token
