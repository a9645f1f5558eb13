"""A model's vocabulary as llguidance wants it."""

from __future__ import annotations

from typing import Protocol

from llguidance import LLTokenizer, TokenizerWrapper

from puna.engine.grammars.slices import SLICES


class GrammarTokens(Protocol):
    """What grammars need to know of a vocabulary: puna.tokenizer has it."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def end_of_generation(self) -> frozenset[int]:
        """Tokens that end a reply."""

    def token_bytes(self, token: int) -> bytes: ...

    def is_special(self, token: int) -> bool:
        """Whether no text stands for it."""

    def encode_within(self, text: str) -> list[int]:
        """The tokens of text that stands within other text, none of them special."""


class _Wrapper(TokenizerWrapper):
    """Its attributes are what llguidance reads."""

    def __init__(self, tokens: GrammarTokens) -> None:
        ids = range(tokens.vocab_size)
        self.is_tokenizer_wrapper = True
        self.eos_token_id = min(tokens.end_of_generation)
        self.bos_token_id = None
        self.tokens = [tokens.token_bytes(token) for token in ids]
        self.special_token_ids = [token for token in ids if tokens.is_special(token)]
        self._tokens = tokens
        self._bytes = {text[0]: token for token, text in enumerate(self.tokens) if len(text) == 1}

    def __call__(self, text: str) -> list[int]:
        """Tokens that stand for exactly this text: some vocabularies write a space where it has U+2581."""
        tokens, wanted = self._tokens.encode_within(text), text.encode()
        if b"".join(map(self._tokens.token_bytes, tokens)) == wanted or not set(wanted) <= self._bytes.keys():
            return tokens
        return [self._bytes[byte] for byte in wanted]


def grammar_tokenizer(tokens: GrammarTokens) -> LLTokenizer:
    """Takes up to a second and some hundred bytes for each token. Raises ValueError for a vocabulary in which
    no reply can end.
    """
    ends = sorted(tokens.end_of_generation)
    if not ends:
        raise ValueError("the model's vocabulary has no token that ends a reply")
    wrapper = _Wrapper(tokens)
    tokenizer = LLTokenizer(wrapper, eos_token=ends, slices=[])
    wrapper.tokens = wrapper.special_token_ids = ()  # it has its own, and keeps the wrapper
    return tokenizer.with_slices(list(SLICES))  # in two steps, between which other threads run
