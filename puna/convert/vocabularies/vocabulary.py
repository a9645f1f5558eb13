"""A vocabulary as GGUF has it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from puna.convert.errors import ConversionError
from puna.gguf.writer import GgufValue, array, boolean, string, strings
from puna.tokenizer.kinds import TokenKind

MAX_TOKENS = 1 << 22
MAX_TOKEN_CHARS = 1 << 16

_ADDED_SCORE = -1000.0
_PADDING_SCORE = -10000.0
_LOOKS_SPECIAL = re.compile(r"<\|.*\|>|<｜.*｜>|<unused.*>|<pad>|<mask>|<2mass>|\[@BOS@\]", re.DOTALL)
_SPACE = "▁"


class Token(msgspec.Struct):
    text: str
    kind: TokenKind = TokenKind.NORMAL
    score: float = 0.0


class AddedToken(msgspec.Struct, frozen=True):
    """A token that is found in a text before it is cut into words."""

    content: str
    special: bool = False


class Vocabulary(msgspec.Struct, kw_only=True):
    model: Literal["gpt2", "llama", "bert", "t5"]
    """Byte-level BPE, SentencePiece's BPE, WordPiece, Unigram."""
    pre: str
    """How byte-level BPE cuts words."""
    tokens: dict[int, Token]
    merges: list[str] = []
    add_space_prefix: bool | None = None
    """None: it is not said."""
    normalizing: dict[str, GgufValue] = {}
    """How texts are changed before they are cut: metadata."""

    def check_id(self, token: int) -> None:
        if not 0 <= token < MAX_TOKENS:
            raise ConversionError(f"the tokenizer has a token {token}")

    def add(self, token: int, added: AddedToken) -> None:
        """Replaces what the vocabulary has there. Raises ConversionError."""
        self.check_id(token)
        is_control = added.special or _LOOKS_SPECIAL.fullmatch(added.content) is not None
        text = added.content if is_control else added.content.replace(_SPACE, " ")
        kind = TokenKind.CONTROL if is_control else TokenKind.USER_DEFINED
        self.tokens[token] = Token(text, kind, _ADDED_SCORE)

    def values(self, size: int) -> Mapping[str, GgufValue]:
        """Metadata; size: of the model's embedding, which may be larger. Raises ConversionError."""
        if not self.tokens or max(self.tokens) >= size:
            raise ConversionError(
                f"the tokenizer has tokens up to {max(self.tokens, default=-1)}, the model's embedding {size}"
            )
        if any(len(token.text) > MAX_TOKEN_CHARS for token in self.tokens.values()):
            raise ConversionError(f"a token is longer than {MAX_TOKEN_CHARS} characters")
        tokens = [self.tokens.get(i) or _padding(i) for i in range(size)]
        values = {
            "tokenizer.ggml.model": string(self.model),
            "tokenizer.ggml.pre": string(self.pre),
            "tokenizer.ggml.tokens": strings([self._shown(token) for token in tokens]),
            "tokenizer.ggml.token_type": array("int32", [token.kind for token in tokens]),
        }
        if self.model in ("llama", "t5"):
            values["tokenizer.ggml.scores"] = array("float32", [token.score for token in tokens])
        elif self.model == "gpt2":
            values["tokenizer.ggml.merges"] = strings(self.merges)
        if self.add_space_prefix is not None:
            values["tokenizer.ggml.add_space_prefix"] = boolean(self.add_space_prefix)
        return values | self.normalizing

    def _shown(self, token: Token) -> str:
        """GGUF's WordPiece marks what begins a word, where others mark what goes on with one."""
        if self.model != "bert" or token.kind is TokenKind.CONTROL:
            return token.text
        return token.text[2:] if token.text.startswith("##") else _SPACE + token.text


def _padding(token: int) -> Token:
    return Token(f"[PAD{token}]", TokenKind.UNUSED, _PADDING_SCORE)
