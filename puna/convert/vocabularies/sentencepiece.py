"""tokenizer.model: a vocabulary as SentencePiece stores it.

Format: sentencepiece_model.proto of the sentencepiece project.
"""

from __future__ import annotations

import struct

from puna.convert.errors import ConversionError
from puna.convert.sources.files import Files
from puna.convert.vocabularies.protobuf import fields
from puna.convert.vocabularies.vocabulary import MAX_TOKENS, Token, Vocabulary
from puna.tokenizer.kinds import TokenKind

NAME = "tokenizer.model"
_ADDED = "added_tokens.json"
_MAX_BYTES = 64 << 20

_PIECES, _TRAINER = 1, 2  # of the model
_TEXT, _SCORE, _KIND = 1, 2, 3  # of a piece
_MODEL_TYPE, _BPE = 3, 2  # of the trainer, and its value
_KINDS = {
    1: TokenKind.NORMAL,
    2: TokenKind.UNKNOWN,
    3: TokenKind.CONTROL,
    4: TokenKind.USER_DEFINED,
    5: TokenKind.UNUSED,
    6: TokenKind.BYTE,
}


def read_sentencepiece(files: Files) -> Vocabulary:
    """With what added_tokens.json adds. Raises ConversionError."""
    tokens: dict[int, Token] = {}
    model_type = None
    for number, value in fields(memoryview(files.read(NAME, _MAX_BYTES)), NAME):
        if number == _PIECES and isinstance(value, memoryview):
            if len(tokens) == MAX_TOKENS:
                raise ConversionError(f"{NAME} has more than {MAX_TOKENS} tokens")
            tokens[len(tokens)] = _piece(value)
        elif number == _TRAINER and isinstance(value, memoryview):
            model_type = dict(fields(value, NAME)).get(_MODEL_TYPE)
    if model_type != _BPE:
        raise ConversionError(f"{NAME} is no BPE model; others are not supported")
    vocabulary = Vocabulary(model="llama", pre="default", tokens=tokens)
    if _ADDED in files:
        for content, token in files.json(_ADDED, dict[str, int]).items():
            vocabulary.check_id(token)
            tokens[token] = Token(content, TokenKind.USER_DEFINED, -1000.0)
    return vocabulary


def _piece(message: memoryview) -> Token:
    token = Token("")
    for number, value in fields(message, NAME):
        if number == _TEXT and isinstance(value, memoryview):
            token.text = bytes(value).decode(errors="replace")
        elif number == _SCORE and isinstance(value, memoryview) and len(value) == 4:
            (token.score,) = struct.unpack("<f", value)
        elif number == _KIND:
            kind = _KINDS.get(value) if isinstance(value, int) else None
            if kind is None:
                raise ConversionError(f"{NAME}: a token has a kind that is not known")
            token.kind = kind
    # The reference leaves those that a user defined to be found as words.
    if token.kind is TokenKind.USER_DEFINED:
        token.kind = TokenKind.NORMAL
    return token
