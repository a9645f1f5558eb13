"""Replies that a grammar accepts, drawn at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.families.family import Family
from puna.tokenizer import Tokenizer

_STRUCTURE = set(b"<>[](){}|,:;=\"'\\/\n\t -_.")
_CLOSES = set(b"\"'}])>\n/")


class Vocabulary:
    """tokens: their bytes; control: those that are control tokens, by text; words: others that are drawn as
    often; the last token ends the reply.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        control: dict[str, int],
        encode: Callable[[bytes], list[int]],
        words: Sequence[int] = (),
    ) -> None:
        self.tokens = [*tokens, b"<end>"]
        self.control = control
        self.end = len(tokens)
        self.eos_token_id, self.bos_token_id = self.end, None
        self.special_token_ids = [*control.values(), self.end]
        self._encode = encode
        self.matcher_tokenizer = LLTokenizer(TokenizerWrapper(self))
        is_structure = np.array([set(token) <= _STRUCTURE for token in self.tokens])
        self.weights = np.where(is_structure, len(self.tokens) / is_structure.sum(), 1.0)
        self.closing_weights = np.where([set(token) <= _CLOSES for token in self.tokens], 1e3, 0.1)
        likely = [*control.values(), *words]
        self.weights[likely] = len(self.tokens) / 20
        self.closing_weights[likely] = 1e4

    def __call__(self, text: bytes) -> list[int]:
        return self._encode(text)


def byte_vocabulary(control: Sequence[str] = (), words: Sequence[str] = ()) -> Vocabulary:
    """A token for every byte, control tokens, and tokens for words."""
    tokens = [bytes([value]) for value in range(256)] + [text.encode() for text in (*control, *words)]
    first_word = 256 + len(control)
    return Vocabulary(
        tokens,
        {text: 256 + i for i, text in enumerate(control)},
        list,
        range(first_word, first_word + len(words)),
    )


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """A real one. None of its control tokens are tags, as far as grammars are concerned."""
    count = tokenizer.vocab_size
    tokens = [tokenizer.token_bytes(token) for token in range(count)]
    special = {f"{token}": token for token in range(count) if tokenizer.is_special(token)}
    return Vocabulary(
        tokens, special, lambda text: tokenizer.encode(text.decode(errors="replace"), add_special=False)
    )


def grammar_of(family: Family, task: ReplyTask, vocabulary: Vocabulary) -> str:
    """As the text process makes it."""
    assert family.grammar is not None
    builder = GrammarBuilder(vocabulary.control.get)
    return builder.grammar(family.grammar(builder, task))


def draw(grammar: str, vocabulary: Vocabulary, seed: int, length: int = 150) -> str | None:
    """A reply; None if it found no end, although from `length` tokens on it looks for one."""
    matcher = LLMatcher(vocabulary.matcher_tokenizer, grammar)
    assert not matcher.is_error(), matcher.get_error()
    rng = random.Random(seed)
    drawn: list[int] = []
    while len(drawn) < 4 * length:
        mask = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        allowed = np.flatnonzero(mask[: len(vocabulary.tokens)])
        if vocabulary.end in allowed and (len(allowed) == 1 or len(drawn) > length or rng.random() < 0.2):
            return b"".join(vocabulary.tokens[token] for token in drawn).decode()
        allowed = allowed[allowed != vocabulary.end]
        weights = (vocabulary.weights if len(drawn) < length else vocabulary.closing_weights)[allowed]
        token = int(rng.choices(allowed, weights)[0])
        assert matcher.consume_token(token), matcher.get_error()
        drawn.append(token)
    return None
