"""Vocabularies that mean harm: either an error says what is wrong, or any text becomes tokens that exist."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from puna.tokenizer import TokenizerError, load_tokenizer
from tests.tokenizer.char_maps import compiled
from tests.tokenizer.texts import HARD_TEXTS

pytestmark = pytest.mark.native

MODELS = ("gpt2", "gemma4", "llama", "t5", "bert", "whitespace")
PRE = ("llama-bpe", "mmbert", "whitespace", "no such name", "afmoe")
strings = st.text(st.sampled_from("ab▁ \n\x00é日\udcff<0xA>#[]"), max_size=8) | st.sampled_from(
    ["<0x41>", "</s>", "[UNK]", "a" * 600, "▁" * 40]
)
numbers = st.floats(width=32) | st.sampled_from([0.0, -1.0])
ids = st.none() | st.integers(0, 3)


@st.composite
def vocabularies(draw):
    tokens = list(dict.fromkeys(["a", "b", "ab", "▁", *draw(st.lists(strings, max_size=12))]))
    metadata = {
        "model": draw(st.sampled_from(MODELS)),
        "pre": draw(st.sampled_from(PRE)),
        "tokens": tokens,
        "merges": draw(st.lists(st.sampled_from(["a b", "a b", "▁ a", "b"]), max_size=4)),
        "scores": np.array(draw(st.lists(numbers, min_size=len(tokens), max_size=len(tokens))), np.float32),
        "token_type": np.array([draw(st.sampled_from([1, 1, 2, 3, 4, 5, 0, 8])) for _ in tokens], np.int32),
        "precompiled_charsmap": np.frombuffer(draw(st.sampled_from([b"", compiled()])), np.uint8),
        **{f"{role}_token_id": draw(ids) for role in ("bos", "eos", "unknown", "seperator")},
        **{
            key: draw(st.none() | st.booleans())
            for key in ("add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces")
        },
    }
    return {f"tokenizer.ggml.{key}": value for key, value in metadata.items() if value is not None}


@settings(max_examples=400)
@given(vocabularies())
def test_no_vocabulary_does_harm(metadata):
    try:
        tokenizer = load_tokenizer(metadata)
    except TokenizerError:
        return
    for text in (*HARD_TEXTS[:8], "ab▁a \nab日", "a" * 2000):
        tokens = tokenizer.encode(text)
        assert all(0 <= token < tokenizer.vocab_size for token in tokens)
        tokenizer.decode(tokens)


@pytest.mark.parametrize("model", ["llama", "t5", "bert"])
def test_tokens_that_begin_with_each_other_take_no_more_than_linear_time(model):
    """With time for each beginning of a token, the longest text would take minutes."""
    metadata = {
        "tokenizer.ggml.model": model,
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *("a" * length for length in range(1, 513))],
        "tokenizer.ggml.scores": np.linspace(-1, -9, 515, dtype=np.float32),
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.seperator_token_id": 1,
    }
    assert load_tokenizer(metadata).encode("a" * 200_000)
