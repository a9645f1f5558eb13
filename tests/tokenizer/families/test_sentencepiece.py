"""Merging by score, compared with a simple loop for any vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puna._native import Vocabulary, VocabularyBuilder
from puna.tokenizer import Tokenizer
from tests.tokenizer.reference import SPACE, merge_by_score

pytestmark = pytest.mark.native

token_texts = st.text(f"ab{SPACE}é", min_size=1, max_size=4)


def sentencepiece(tokens: list[str], scores: list[float]) -> Tokenizer:
    builder = VocabularyBuilder(tokens)
    blob = builder.sentencepiece(np.array(scores, np.float32).tobytes())
    return Tokenizer(Vocabulary(blob))


@settings(max_examples=500)
@given(
    st.dictionaries(token_texts, st.integers(-3, 3), min_size=1, max_size=20), st.text("ab é", max_size=40)
)
def test_as_a_simple_loop_merges_them(scores, text):
    tokenizer = sentencepiece([*scores], [*scores.values()])
    # Symbols that are no token would become bytes, which have no token here.
    expected = [symbol for symbol in merge_by_score(text, scores) if symbol in scores]
    assert [tokenizer.token_text(token) for token in tokenizer.encode(text)] == expected


def test_a_long_word_takes_no_longer_than_many_short_ones():
    tokenizer = sentencepiece(["a", "aa", "aaaa"], [0, 2, 1])
    assert tokenizer.encode("a" * 300_003) == [2] * 75_000 + [1, 0]


def test_scores_that_are_no_numbers_are_the_worst():
    tokenizer = sentencepiece(["ab", "bc", "a", "b", "c"], [float("nan"), -1e30, 0, 0, 0])
    assert tokenizer.encode("abc") == [2, 1]
