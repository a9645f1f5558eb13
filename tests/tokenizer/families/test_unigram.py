"""SentencePiece's unigram model; that all of it is llama.cpp's is for tests/oracle/test_tokens.py."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puna.tokenizer import Tokenizer, TokenizerError, load_tokenizer
from tests.tokenizer.char_maps import compiled
from tests.tokenizer.texts import HARD_TEXTS
from tests.tokenizer.vocabularies import unigram

pytestmark = pytest.mark.native

METADATA = unigram()
TOKENIZER = load_tokenizer(METADATA)


def written(text: str, tokenizer: Tokenizer = TOKENIZER) -> list[str]:
    return [tokenizer.token_text(token) for token in tokenizer.encode(text, add_special=False)]


def with_map(char_map: bytes) -> Tokenizer:
    return load_tokenizer(
        METADATA | {"tokenizer.ggml.precompiled_charsmap": np.frombuffer(char_map, np.uint8)}
    )


def test_best_way_to_cut_is_taken():
    metadata = METADATA | {"tokenizer.ggml.scores": np.full(len(METADATA["tokenizer.ggml.tokens"]), -9.0)}
    scores = metadata["tokenizer.ggml.scores"]
    for text, score in (("▁the", -7.0), ("▁t", -3.0), ("he", -3.5)):
        scores[metadata["tokenizer.ggml.tokens"].index(text)] = score
    assert written("the", load_tokenizer(metadata)) == ["▁t", "he"]


def test_characters_are_replaced_and_spaces_merged():
    assert written("  ﬁ \t ﬁ ") == written("fi fi")
    assert written("\u200d") == []


def test_unknown_characters_in_a_row_are_one_token():
    assert written("юююю ю").count("<unk>") == 2


def test_a_long_text_takes_no_longer_than_many_short_ones():
    for run in ("x", "日", " ", "ю", "q"):
        assert len(TOKENIZER.encode(run * 300_000, add_special=False)) < 300_002


def test_scores_that_are_no_numbers_do_no_harm():
    for value in (np.nan, np.inf, -np.inf, 3e38):
        metadata = METADATA | {
            "tokenizer.ggml.scores": np.full_like(METADATA["tokenizer.ggml.scores"], value)
        }
        assert written("the ю", load_tokenizer(metadata))


@pytest.mark.parametrize(
    ("char_map", "message"),
    [
        (b"\1\0", "precompiled_charsmap: the map of characters is cut short"),
        (struct.pack("<I", 8) + bytes(8), "is cut short"),
        (struct.pack("<I", 1 << 31) + bytes(80), "is cut short"),
        (struct.pack("<I", 4) + bytes(4) + b"no end", "has a replacement that is no text or too long"),
        (struct.pack("<I", 4) + bytes(4) + b"\xff\0", "has a replacement that is no text or too long"),
        (
            struct.pack("<I", 4) + bytes(4) + b"x" * 300 + b"\0",
            "has a replacement that is no text or too long",
        ),
    ],
)
def test_damaged_map_is_an_error(char_map, message):
    with pytest.raises(TokenizerError, match=message):
        with_map(char_map)


@pytest.mark.parametrize("char_map", [b"", compiled()])
def test_what_is_wrong_with_tokens_is_said_of_them(char_map):
    tokens = [*METADATA["tokenizer.ggml.tokens"][:-1], "x" * 600]
    metadata = METADATA | {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.precompiled_charsmap": np.frombuffer(char_map, np.uint8),
    }
    with pytest.raises(TokenizerError, match=r"ggml\.tokens: token \d+: 600 bytes are more than"):
        load_tokenizer(metadata)


def test_map_must_be_bytes():
    with pytest.raises(TokenizerError, match="precompiled_charsmap: expected an array of bytes, found list"):
        load_tokenizer(METADATA | {"tokenizer.ggml.precompiled_charsmap": [1, 2]})
    with pytest.raises(TokenizerError, match="precompiled_charsmap: 5000000 bytes are more than the limit"):
        with_map(bytes(5_000_000))


NODES = struct.unpack("<I", compiled()[:4])[0]


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, NODES // 4 - 1), st.integers(0, 2**32 - 1)), max_size=300), st.randoms()
)
def test_a_map_that_leads_anywhere_does_no_harm(changes, dice):
    data = bytearray(compiled())
    for index, node in changes:
        struct.pack_into("<I", data, 4 + 4 * index, node)
    for _ in range(300):  # those that are in use
        struct.pack_into("<I", data, 4 + 4 * dice.randrange(256), dice.getrandbits(32))
    text = dice.choice(HARD_TEXTS) + "ﬁ½™e\u0301ﷺ"
    with_map(bytes(data)).encode(text)
