"""Tokens to text and to bytes."""

from __future__ import annotations

import pytest

from puna._native import TokenTable
from puna.tokenizer import TokenizerError, load_tokenizer
from tests.tokenizer.vocabularies import UNUSED, all_pairs_bpe, sentencepiece

pytestmark = pytest.mark.native

BPE = load_tokenizer(all_pairs_bpe("gpt-2"))
SENTENCEPIECE = load_tokenizer(sentencepiece())


def test_space_that_encoding_added_goes_when_the_whole_is_decoded():
    tokens = SENTENCEPIECE.encode(" the world")
    assert SENTENCEPIECE.decode(tokens) == "<s> the world"
    assert SENTENCEPIECE.decode(tokens, skip_special=True) == " the world"
    assert SENTENCEPIECE.decode([]) == ""


def test_bytes_of_tokens():
    assert BPE.token_bytes(BPE.encode("é")[0]) == "é".encode()
    assert SENTENCEPIECE.token_bytes(SENTENCEPIECE.find("▁the")) == b" the"
    assert SENTENCEPIECE.token_bytes(SENTENCEPIECE.find("<0xFF>")) == b"\xff"
    assert BPE.token_bytes(BPE.bos_id) == b"<|im_start|>"


@pytest.mark.parametrize("make", [all_pairs_bpe, lambda _: sentencepiece()], ids=["bpe", "sentencepiece"])
def test_padding_tokens_stand_for_nothing(make):
    metadata = make("gpt-2")
    metadata["tokenizer.ggml.tokens"][300] = "[PAD]x"
    metadata["tokenizer.ggml.token_type"][300] = UNUSED
    metadata["tokenizer.ggml.merges"] = []
    assert load_tokenizer(metadata).token_bytes(300) == b""


def test_token_outside_the_alphabet_stands_for_itself():
    metadata = all_pairs_bpe("gpt-2")
    metadata["tokenizer.ggml.tokens"][-1] = "日\u0120\udcff"
    metadata["tokenizer.ggml.token_type"][-1] = 1
    tokenizer = load_tokenizer(metadata)
    assert tokenizer.token_bytes(tokenizer.vocab_size - 1) == "日 ".encode() + b"\xff"


@pytest.mark.parametrize("tokenizer", [BPE, SENTENCEPIECE], ids=["bpe", "sentencepiece"])
def test_table_of_all_tokens(tokenizer):
    every = range(tokenizer.vocab_size)
    expected = TokenTable.build(
        [tokenizer.token_bytes(token) for token in every],
        bytes(tokenizer.is_special(token) for token in every),
    )
    assert tokenizer.token_table() == expected


@pytest.mark.parametrize("token", [-1, BPE.vocab_size])
def test_token_that_does_not_exist_is_an_error(token):
    for use in (BPE.token_bytes, BPE.is_special, BPE.token_text):
        with pytest.raises(TokenizerError, match=f"token {token} is not in the vocabulary"):
            use(token)
