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

        self._ids = {token: index for index, token in enumerate(self.tokens)}

    def __call__(self, text: bytes) -> list[int]:
        return self._encode(text)

    def leading_to(self, tags: Sequence[str], text: bytes) -> list[int]:
        """Tokens that go on with the tags that the text ends with a part of, or else that begin one."""
        rests = [(_begun(tag, text), tag) for tag in map(str.encode, tags)]
        longest = max((known for known, _ in rests), default=0)
        found = []
        for known, tag in rests:
            pieces = [tag[known:end] for end in range(len(tag), known, -1)] if known == longest else []
            found += [self._ids[piece] for piece in pieces if piece in self._ids][:1]
        return found


def _begun(tag: bytes, text: bytes) -> int:
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)


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


def draw(
    grammar: str, vocabulary: Vocabulary, seed: int, length: int = 150, tags: Sequence[str] = ()
) -> str | None:
    """A reply; None if it found no end, although from `length` tokens on it looks for one.

    tags: those that then are written.
    """
    matcher = LLMatcher(vocabulary.matcher_tokenizer, grammar)
    assert not matcher.is_error(), matcher.get_error()
    rng = random.Random(seed)
    drawn: list[int] = []
    text = b""
    while len(drawn) < 8 * length:
        mask = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        allowed = np.flatnonzero(mask[: len(vocabulary.tokens)])
        if vocabulary.end in allowed and (len(allowed) == 1 or len(drawn) > length or rng.random() < 0.2):
            return text.decode()
        allowed = allowed[allowed != vocabulary.end]
        weights = vocabulary.weights if len(drawn) < length else vocabulary.closing_weights
        token = _chosen(allowed, weights[allowed], rng)
        if len(drawn) >= length and rng.random() < 0.6:
            leading = [t for t in vocabulary.leading_to(tags, text) if t in allowed]
            token = rng.choice(leading) if leading else token
        assert matcher.consume_token(token), matcher.get_error()
        drawn.append(token)
        text += vocabulary.tokens[token]
    return None


def _chosen(tokens: Sequence[int], weights: np.ndarray, rng: random.Random) -> int:
    ends = weights.cumsum()
    return int(tokens[int(ends.searchsorted(rng.random() * ends[-1], side="right"))])
