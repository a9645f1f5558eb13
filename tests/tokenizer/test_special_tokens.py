"""Special tokens in text, compared with a simple search."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puna._native import Vocabulary, VocabularyBuilder
from puna.tokenizer.kinds import STRIPS_SPACE_AFTER, TokenKind
from tests.tokenizer.reference import find_special

pytestmark = pytest.mark.native

token_texts = st.text("ab é\n", min_size=1, max_size=6) | st.text("a", min_size=1, max_size=20)


def vocabulary(tokens: list[str], traits: bytes | None = None) -> Vocabulary:
    builder = VocabularyBuilder(tokens)
    builder.set_traits(traits or bytes([TokenKind.USER_DEFINED]) * len(tokens))
    return Vocabulary(builder.byte_pairs([], "gpt-2"))


def found(vocabulary: Vocabulary, text: str, *, parse_special: bool = True) -> list[tuple[int, int, int]]:
    """In characters."""
    data = text.encode()
    spans = vocabulary.find_special(data, parse_special)
    return [(len(data[:begin].decode()), len(data[:end].decode()), token) for begin, end, token in spans]


@settings(max_examples=500)
@given(st.lists(token_texts, min_size=1, max_size=12, unique=True), st.text("ab é\n", max_size=60), st.data())
def test_as_a_simple_search_finds_them(tokens, text, data):
    strips = data.draw(st.frozensets(st.sampled_from(range(len(tokens)))))
    kinds = [TokenKind.USER_DEFINED | (STRIPS_SPACE_AFTER if i in strips else 0) for i in range(len(tokens))]
    ids = {token: i for i, token in enumerate(tokens)}
    assert found(vocabulary(tokens, bytes(kinds)), text) == find_special(text, ids, strips)


@given(st.lists(token_texts, min_size=2, max_size=12, unique=True), st.text("ab", max_size=60))
def test_control_tokens_are_found_only_if_asked_for(tokens, text):
    kinds = [TokenKind.USER_DEFINED if i % 2 else TokenKind.CONTROL for i in range(len(tokens))]
    always = {token: i for i, token in enumerate(tokens) if i % 2}
    both = vocabulary(tokens, bytes(kinds))
    assert found(both, text, parse_special=False) == find_special(text, always)


def test_tokens_that_begin_with_each_other_take_no_longer_than_others():
    """Looking for each of 2,000 tokens at each of 300,000 places would take minutes."""
    tokens = vocabulary(["a" * n for n in range(1, 2001)])
    text = ("a" * 1999 + "b") * 100 + "a" * 100_000
    spans = tokens.find_special(text.encode(), True)
    assert [end - begin for begin, end, _ in spans] == [1999] * 100 + [2000] * 50


def test_tokens_that_are_no_text_are_not_found_within_characters():
    assert vocabulary(["\udcc3", "\udca9"]).find_special("é".encode(), True) == []


def test_tokens_may_hold_a_zero():
    assert vocabulary(["<\0>"]).find_special(b"a<\0>b", True) == [(1, 4, 0)]
