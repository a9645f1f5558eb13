"""Text to token ids and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

from puna.tokenizer.detokenizer import Detokenizer
from puna.tokenizer.errors import TokenizerError
from puna.tokenizer.special_tokens import SpecialTokens
from puna.tokenizer.vocabulary import TokenKind, Vocabulary

_SURROGATES = re.compile("[\ud800-\udfff]")


class TextModel(Protocol):
    """What differs between kinds of vocabularies."""

    add_space_prefix: bool
    """Text that follows nothing or a special token gets a space in front, which decoding takes away again."""

    def encode(self, text: str) -> list[int]: ...
    def token_bytes(self, token: int) -> bytes: ...


class Tokenizer:
    """Gives the tokens that llama.cpp gives. Thread-safe."""

    def __init__(self, vocabulary: Vocabulary, model: TextModel) -> None:
        self._vocabulary = vocabulary
        self._model = model

    @property
    def vocab_size(self) -> int:
        return len(self._vocabulary)

    @property
    def bos_id(self) -> int | None:
        return self._vocabulary.bos_id

    @property
    def eos_id(self) -> int | None:
        return self._vocabulary.eos_id

    @property
    def end_of_generation(self) -> frozenset[int]:
        """Tokens that end a reply."""
        return self._vocabulary.end_of_generation

    @property
    def add_bos(self) -> bool:
        """Whether `encode` with `add_special` begins with `bos_id`; then that is not None."""
        return self._vocabulary.add_bos

    @property
    def add_eos(self) -> bool:
        return self._vocabulary.add_eos

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """`add_special`: BOS and EOS as the model wants them. `parse_special`: find control tokens in `text`.

        Half of a surrogate pair is read as U+FFFD.
        """
        vocabulary = self._vocabulary
        tokens: list[int] = []
        if add_special and vocabulary.add_bos and vocabulary.bos_id is not None:
            tokens.append(vocabulary.bos_id)
        after_special = True
        for piece in self._special_tokens.split(_SURROGATES.sub("\ufffd", text), parse_special):
            if isinstance(piece, int):
                tokens.append(piece)
            else:
                prefix = " " if after_special and self._model.add_space_prefix else ""
                tokens += self._model.encode(prefix + piece)
            after_special = isinstance(piece, int)
        if add_special and vocabulary.add_eos and vocabulary.eos_id is not None:
            tokens.append(vocabulary.eos_id)
        return tokens

    def encode_prompt(self, text: str) -> list[int]:
        """Of a rendered prompt: begins with BOS if the model wants that, but never twice.

        Many chat templates write a BOS of their own.
        """
        tokens = self.encode(text)
        doubled = self.add_bos and tokens[:2] == [self.bos_id, self.bos_id]
        return tokens[1:] if doubled else tokens

    def decode(self, ids: Sequence[int], *, skip_special: bool = False) -> str:
        """The text of a whole sequence, without the space that encoding put in front of it.

        `skip_special`: leave out control tokens. Raises TokenizerError for an id that is no token.
        """
        visible = self._visible_bytes if skip_special else self.token_bytes
        pieces = [visible(token) for token in ids]
        first = 1 if ids and ids[0] == self.bos_id else 0
        if self._model.add_space_prefix and len(pieces) > first:
            pieces[first] = pieces[first].removeprefix(b" ")
        return b"".join(pieces).decode("utf-8", "replace")

    def token_text(self, token: int) -> str:
        """As the vocabulary writes it: what a template needs to name a special token."""
        return self._vocabulary.texts[self._checked(token)]

    def find(self, text: str) -> int | None:
        """The token that the vocabulary writes as `text`."""
        return self._vocabulary.ids.get(text)

    def token_bytes(self, token: int) -> bytes:
        """Also of control tokens, which are not shown. Raises TokenizerError if there is no such token."""
        return self._model.token_bytes(self._checked(token))

    def is_special(self, token: int) -> bool:
        """Whether it is a control token, which detokenizing leaves out."""
        kind = self._vocabulary.kinds[self._checked(token)]
        return kind in (TokenKind.CONTROL, TokenKind.UNKNOWN)

    def detokenizer(self) -> Detokenizer:
        """For the continuation of a text: a leading space stays."""
        return Detokenizer(self._visible_bytes)

    def _visible_bytes(self, token: int) -> bytes:
        return b"" if self.is_special(token) else self._model.token_bytes(token)

    def _checked(self, token: int) -> int:
        if not 0 <= token < len(self._vocabulary):
            raise TokenizerError(f"token {token} is not in the vocabulary of {len(self._vocabulary)}")
        return token

    @cached_property
    def _special_tokens(self) -> SpecialTokens:
        return SpecialTokens(self._vocabulary)
