"""Merging byte pairs, compared with the `tokenizers` library for any vocabulary that merges can make."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from puna._native import NativeError, Vocabulary, VocabularyBuilder, WordCutter
from puna.tokenizer.kinds import Convention

pytestmark = pytest.mark.native

LETTERS = "abc"


WORDS = WordCutter([" "])


def byte_pairs(
    tokens: list[str], merges: list[str], *, whole_words: bool = False
) -> Callable[[str], list[int]]:
    """Encodes text whose words are what spaces leave."""
    builder = VocabularyBuilder(tokens)
    builder.set_conventions(Convention.WHOLE_WORDS if whole_words else 0)
    vocabulary = Vocabulary(builder.byte_pairs(merges, "gpt-2"))
    return lambda text: vocabulary.encode(text.encode(), False, WORDS)


@st.composite
def vocabularies(draw):
    """Tokens, and the pairs that merge, by rank: each of two that are tokens by then."""
    tokens, merges = list(LETTERS), []
    for _ in range(draw(st.integers(0, 12))):
        left, right = (draw(st.sampled_from(tokens)) for _ in "lr")
        if left + right not in tokens:
            tokens.append(left + right)
        if (left, right) not in merges:
            merges.append((left, right))
    return tokens, draw(st.permutations(merges))


words = st.text(LETTERS, min_size=1, max_size=40)


@settings(max_examples=300)
@given(vocabularies(), words, st.booleans())
def test_as_the_library_does_it(vocabulary, word, whole_words):
    tokens, merges = vocabulary
    ids = {text: token for token, text in enumerate(tokens)}
    library = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=whole_words))
    ours = byte_pairs(tokens, [f"{left} {right}" for left, right in merges], whole_words=whole_words)
    assert ours(word) == library.encode(word).ids


def test_words_do_not_touch_each_other():
    assert byte_pairs(["a", "b", "ab"], ["a b"])("ab a b ") == [2, 0, 1]


def test_bytes_without_a_token_keep_their_neighbours_apart():
    assert byte_pairs(["a", "b", "ab"], ["a b"])("axb x abx") == [0, 1, 2]


def test_first_of_equal_merges_counts():
    assert byte_pairs(["a", "b", "c", "ab", "bc"], ["b c", "a b", "b c"])("abc") == [0, 4]


def test_a_long_word_takes_no_longer_than_many_short_ones():
    pairs = byte_pairs(["a", "aa", "aaaa"], ["a a", "aa aa"])
    assert pairs("a" * 1_000_003) == [2] * 250_000 + [1, 0]


@pytest.mark.parametrize("merge", ["a c", "c a", "a", "", " ", "a  b", "b a"])
def test_merge_of_what_is_no_token_is_an_error(merge):
    with pytest.raises(NativeError, match="is not in the vocabulary"):
        byte_pairs(["a", "b", "ab"], ["a b", merge])
