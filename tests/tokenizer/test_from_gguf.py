"""Metadata comes from anywhere: what is wrong with it is said by key; what it leaves out is filled in."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from puna.tokenizer import TokenizerError, load_tokenizer
from tests.tokenizer.vocabularies import BYTE, all_pairs_bpe, sentencepiece

pytestmark = pytest.mark.native

# Made once: building one takes longer than loading it.
METADATA = all_pairs_bpe("gpt-2")
SIZE = len(METADATA["tokenizer.ggml.tokens"])
KINDS = METADATA["tokenizer.ggml.token_type"]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("model", None, "model is missing"),
        ("model", 7, "model: expected a string, found int"),
        ("model", "rwkv", "model: 'rwkv' is not supported; supported are 'gpt2'.*, 'bert'$"),
        ("pre", ["x"], "pre: expected a string, found list"),
        ("tokens", None, "tokens is missing"),
        ("tokens", "abc", "tokens: expected an array of strings, found str"),
        ("tokens", ["a", 7], "tokens: expected an array of strings"),
        ("tokens", [], "tokens is empty"),
        ("tokens", ["a", "b", "a"], "tokens: 'a' is there more than once"),
        ("tokens", ["a"] * 5_000_000, "tokens: 5000000 entries are more than"),
        ("tokens", ["a", "b" * 5000], "tokens: token 1: 5000 bytes are more than the limit of 4096"),
        ("token_type", np.ones(3, np.int32), f"token_type: 3 entries for a vocabulary of {SIZE}"),
        ("token_type", "normal", "token_type: expected an array of numbers"),
        ("token_type", ["a"] * SIZE, "token_type: expected an array of numbers"),
        ("token_type", np.full(SIZE, BYTE, np.int32), "tokens: .* is marked as a byte but is not one"),
        ("merges", None, "merges is missing"),
        ("merges", ["a b c d"], "merges: .* is not in the vocabulary"),
        ("merges", ["nospace"], "merges: .* is not in the vocabulary"),
        ("merges", ["a \udcff"], "merges: .* is not in the vocabulary"),
        ("bos_token_id", SIZE, f"bos_token_id: token {SIZE} is not in the vocabulary of {SIZE}"),
        ("eos_token_id", -1, "eos_token_id: token -1 is not in the vocabulary"),
        ("eot_token_id", "x", "eot_token_id: expected an integer, found str"),
        ("eom_token_id", True, "eom_token_id: expected an integer, found bool"),
        ("add_bos_token", 1, "add_bos_token: expected a boolean, found int"),
    ],
)
def test_error_names_the_key(key, value, message):
    metadata = METADATA | {f"tokenizer.ggml.{key}": value}
    with pytest.raises(TokenizerError, match=message):
        load_tokenizer({k: v for k, v in metadata.items() if v is not None})


def test_bos_that_is_wanted_must_be_named():
    metadata = METADATA | {"tokenizer.ggml.add_bos_token": True}
    del metadata["tokenizer.ggml.bos_token_id"]
    with pytest.raises(TokenizerError, match=r"add_bos_token is true, but .*bos_token_id is missing"):
        load_tokenizer(metadata)


def test_too_few_scores():
    with pytest.raises(TokenizerError, match="scores: 2 entries"):
        load_tokenizer(sentencepiece(scores=np.zeros(2, np.float32)))


def test_scores_that_are_no_numbers_do_no_harm():
    metadata = sentencepiece()
    metadata["tokenizer.ggml.scores"][:] = np.nan
    assert load_tokenizer(metadata).decode(load_tokenizer(metadata).encode("the world")) == "<s>the world"
    del metadata["tokenizer.ggml.scores"]
    assert load_tokenizer(metadata).decode(load_tokenizer(metadata).encode("the world")) == "<s>the world"


def test_first_of_equal_merges_counts():
    tokens = [*"abc", "ab", "bc"]
    metadata = METADATA | {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.ones(5, np.int32),
        "tokenizer.ggml.merges": ["b c", "a b", "b c"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
    }
    assert load_tokenizer(metadata).encode("abc") == [0, 4]


def test_empty_tokens_get_a_name_and_unknown_kinds_none():
    tokens = [*METADATA["tokenizer.ggml.tokens"], "", ""]
    metadata = METADATA | {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.append(KINDS, [99, 99]),
    }
    tokenizer = load_tokenizer(metadata)
    assert tokenizer.token_text(SIZE) == f"[EMPTY_{SIZE}]"
    assert tokenizer.token_bytes(SIZE) == b""


def test_unknown_way_of_cutting_words_is_the_default_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        tokenizer = load_tokenizer(METADATA | {"tokenizer.ggml.pre": "from-the-future"})
    assert "from-the-future" in caplog.text
    text = "It's 12345... \n x"
    assert tokenizer.encode(text) == load_tokenizer(METADATA | {"tokenizer.ggml.pre": "default"}).encode(text)


def test_what_files_leave_out():
    """SentencePiece models have their special tokens in fixed places, and want a BOS."""
    metadata = sentencepiece()
    for role in ("bos", "eos", "unknown"):
        del metadata[f"tokenizer.ggml.{role}_token_id"]
    tokenizer = load_tokenizer(metadata)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (1, 2)
    assert (tokenizer.add_bos, tokenizer.add_eos) == (True, False)
    bpe = {k: v for k, v in METADATA.items() if not k.endswith("token_id")}
    tokenizer = load_tokenizer(bpe | {"tokenizer.ggml.pre": "llama-bpe"})
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (None, None, False)


def with_tokens(*names, **extra):
    """(tokenizer, id of each name), the names being normal tokens."""
    metadata = METADATA | {
        "tokenizer.ggml.tokens": [*METADATA["tokenizer.ggml.tokens"], *names],
        "tokenizer.ggml.token_type": np.append(KINDS, np.ones(len(names), np.int32)),
    }
    tokenizer = load_tokenizer(metadata | {f"tokenizer.ggml.{key}": value for key, value in extra.items()})
    return tokenizer, [tokenizer.find(name) for name in names]


def ends(tokenizer, ids):
    return [token in tokenizer.end_of_generation for token in ids]


def test_tokens_end_a_reply_by_their_name_and_are_then_control_tokens():
    tokenizer, ids = with_tokens("<|eot_id|>", "</s>", "_<EOT>", "<｜end▁of▁sentence｜>", "<|other|>")
    assert ends(tokenizer, ids) == [True, True, True, True, False]
    assert [tokenizer.is_special(token) for token in ids] == [True, True, True, True, False]
    assert tokenizer.eos_id in tokenizer.end_of_generation


def test_tokens_end_a_reply_if_metadata_says_so():
    tokenizer, ids = with_tokens("one", "two", "three", eot_token_id=SIZE, eom_token_id=SIZE + 1)
    assert ends(tokenizer, ids) == [True, True, False]


def test_padding_and_repository_tokens_of_code_models_end_a_reply():
    tokenizer, ids = with_tokens("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>")
    assert ends(tokenizer, ids) == [True, True, True, False]
    tokenizer, ids = with_tokens("<|fim_pad|>", "padding", fim_pad_token_id=SIZE + 1)
    assert ends(tokenizer, ids) == [False, True]


def test_separator_of_harmony_is_no_end_and_its_markers_are_text():
    tokenizer, ids = with_tokens("<|end|>", "<|return|>", "<|call|>", "<|channel|>")
    assert ends(tokenizer, ids) == [False, True, True, False]
    assert [tokenizer.is_special(token) for token in ids] == [False, True, True, False]
    tokenizer, ids = with_tokens("<|end|>", "<|return|>")
    assert ends(tokenizer, ids) == [True, True]


def test_models_with_tool_responses_use_the_old_end_as_text():
    tokenizer, ids = with_tokens("</s>", "<|tool_response>")
    assert ends(tokenizer, ids) == [False, True]
    assert not tokenizer.is_special(ids[0])
