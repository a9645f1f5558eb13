"""Text to token ids and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from puna._native import NativeError, Vocabulary
from puna.tokenizer.errors import TokenizerError
from puna.tokenizer.kinds import ENDS_GENERATION, KIND_MASK, Convention, TokenKind
from puna.tokenizer.pre_tokenizers import PRE_TOKENIZERS, word_cutter

_SURROGATES = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """Gives the tokens that llama.cpp gives. Thread-safe."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        name = vocabulary.word_pattern
        if name and name not in PRE_TOKENIZERS:
            raise TokenizerError("a vocabulary's way of cutting words is damaged")
        self.words = word_cutter(name) if name else None
        self.vocabulary = vocabulary
        self._traits = vocabulary.traits()
        self.bos_id: int | None = vocabulary.bos_id
        self.eos_id: int | None = vocabulary.eos_id
        self.conventions = Convention(vocabulary.conventions)
        self.add_bos = Convention.ADD_BOS in self.conventions
        """Whether `encode` with `add_special` begins with `bos_id`; then that is not None."""
        self.add_eos = Convention.ADD_EOS in self.conventions
        self.separator_id: int | None = vocabulary.separator_id
        self.add_separator = Convention.ADD_SEPARATOR in self.conventions
        """Between two texts; then there is one."""
        ends_with_eos = self.eos_id if self.add_eos else None
        self.begin_id = self.bos_id if self.add_bos else None
        """What `encode` with `add_special` puts in front of a text."""
        self.end_id = (
            self.separator_id if Convention.END_WITH_SEPARATOR in self.conventions else ends_with_eos
        )
        """And behind it."""

    @classmethod
    def from_blob(cls, blob: bytes) -> Tokenizer:
        """Of what build_vocabulary made. Raises TokenizerError if it is damaged."""
        try:
            return cls(Vocabulary(blob))
        except NativeError as error:
            raise TokenizerError(str(error)) from error

    @classmethod
    def from_descriptor(cls, fd: int) -> Tokenizer:
        """Of a sealed memfd that holds what build_vocabulary made: mapped, so that all who do share it.

        The caller keeps `fd`, and may close it. Raises TokenizerError if it is not sealed, or damaged.
        """
        try:
            return cls(Vocabulary.from_descriptor(fd))
        except NativeError as error:
            raise TokenizerError(str(error)) from error

    @property
    def vocab_size(self) -> int:
        return len(self._traits)

    @cached_property
    def end_of_generation(self) -> frozenset[int]:
        """Tokens that end a reply."""
        traits = np.frombuffer(self._traits, np.uint8)
        return frozenset(np.flatnonzero(traits & ENDS_GENERATION).tolist())

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """`add_special`: what the model wants texts to begin and to end with. `parse_special`: find control
        tokens in `text`.

        Half of a surrogate pair is read as U+FFFD.
        """
        tokens = self.vocabulary.encode(_SURROGATES.sub("\ufffd", text).encode(), parse_special, self.words)
        if add_special and self.begin_id is not None:
            tokens.insert(0, self.begin_id)
        if add_special and self.end_id is not None:
            tokens.append(self.end_id)
        return tokens

    def encode_within(self, text: str) -> list[int]:
        """Of text that stands within other text, with no control tokens in it."""
        return self.vocabulary.encode(text.encode(), False, self.words, True)

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
        if Convention.ADD_SPACE_PREFIX in self.conventions and len(pieces) > first:
            pieces[first] = pieces[first].removeprefix(b" ")
        return b"".join(pieces).decode("utf-8", "replace")

    def token_text(self, token: int) -> str:
        """As the vocabulary writes it: what a template needs to name a special token."""
        return self.vocabulary.text(self._checked(token)).decode("utf-8", "surrogateescape")

    def find(self, text: str) -> int | None:
        """The token that the vocabulary writes as `text`."""
        try:
            return self.vocabulary.find(text.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:  # half of a surrogate pair, which no file can hold
            return None

    def find_control(self, text: str) -> int | None:
        """The control token that the vocabulary writes as `text`."""
        token = self.find(text)
        return token if token is not None and self.is_special(token) else None

    def token_bytes(self, token: int) -> bytes:
        """Also of control tokens, which are not shown. Raises TokenizerError if there is no such token."""
        return self.vocabulary.token_bytes(self._checked(token))

    def control_positions(self, tokens: Sequence[int]) -> list[int]:
        """Where control tokens stand among these, all of which exist."""
        kinds = np.frombuffer(self._traits, np.uint8)[np.array(tokens, np.int32)] & KIND_MASK
        return np.flatnonzero(kinds == TokenKind.CONTROL).tolist()

    def token_table(self) -> bytes:
        """What the engine needs to turn tokens into text: the blob of a TokenTable."""
        return self.vocabulary.token_table()

    def is_special(self, token: int) -> bool:
        """Whether it is a control token, which detokenizing leaves out."""
        return self._traits[self._checked(token)] & KIND_MASK in (TokenKind.CONTROL, TokenKind.UNKNOWN)

    def _visible_bytes(self, token: int) -> bytes:
        return b"" if self.is_special(token) else self.token_bytes(token)

    def _checked(self, token: int) -> int:
        if not 0 <= token < self.vocab_size:
            raise TokenizerError(f"token {token} is not in the vocabulary of {self.vocab_size}")
        return token
