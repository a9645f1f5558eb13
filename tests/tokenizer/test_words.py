"""Cutting text into words, compared with the Oniguruma engine of the `tokenizers` library."""

from __future__ import annotations

import sys

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers as library

from puna._native import NativeError, WordCutter
from puna.tokenizer.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer, word_cutter
from tests.tokenizer.texts import HARD_TEXTS, PIECES, texts

pytestmark = pytest.mark.native

# One name per way of cutting words.
NAMES = {pre: name for name, pre in reversed(PRE_TOKENIZERS.items())}
EVERY_CHARACTER = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
RUN = 60_000
RUNS = [*" \n\t\u00a01aA'!-日é\u0301٣", "\n ", "1٣", "a'", " '", "a ", "<sentinel:1", "IMGIMGA"]


def by_library(pre: PreTokenizer) -> library.PreTokenizer:
    patterns = [*pre.patterns]
    if pre.numbers_in_threes:
        patterns.insert(0, r"(?<=\p{N})(?=(\p{N}{3})*(?!\p{N}))")
    if pre.digits_in_threes:
        patterns.append("(?=([0-9]{3})+(?![0-9]))")
    return library.Sequence(
        [library.Split(tokenizers.Regex(pattern), behavior="isolated") for pattern in patterns]
    )


def cut(cutter: WordCutter, text: str) -> list[str]:
    data = text.encode()
    ends = cutter.ends(data)
    return [data[begin:end].decode() for begin, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("pre", NAMES, ids=NAMES.values())
def test_as_oniguruma_cuts_them(pre):
    ours, theirs = word_cutter(NAMES[pre]), by_library(pre)
    some = st.lists(st.sampled_from([*PIECES, *"019٣aA'日! \n/"]), max_size=40).map("".join)

    @settings(max_examples=100)
    @given(texts | some | st.text("09٣a ", max_size=30))
    def same(text: str) -> None:
        assert cut(ours, text) == [word for word, _ in theirs.pre_tokenize_str(text)]

    same()
    for text in HARD_TEXTS:
        assert cut(ours, text) == [word for word, _ in theirs.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", "LNPSM")
def test_categories_are_oniguruma_s(name):
    pattern = rf"\p{{{name}}}+"
    theirs = by_library(PreTokenizer((pattern,)))
    expected = [word for word, _ in theirs.pre_tokenize_str(EVERY_CHARACTER)]
    assert cut(WordCutter([pattern]), EVERY_CHARACTER) == expected


@pytest.mark.parametrize("pre", NAMES, ids=NAMES.values())
def test_no_run_takes_longer_than_others(pre):
    """With quadratic time, each would take minutes."""
    ours = word_cutter(NAMES[pre])
    for run in RUNS:
        for end in ("", "x", "1"):
            text = run * (RUN // len(run)) + end
            assert ours.ends(text.encode())[-1] == len(text.encode())


@pytest.mark.parametrize(
    "pattern",
    ["(a", "a)", "[a", "[b-a]", r"\d", r"\p{X}", r"\p{Lu}", "a{2,1}", "a{9999}", "(?=a)", r"\x{}", "a\\"],
)
def test_what_is_no_pattern_is_an_error(pattern):
    with pytest.raises(NativeError):
        WordCutter([pattern])
