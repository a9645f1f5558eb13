"""Tokens to text: whole, or as they come, but never half a character."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna._native import TokenTable
from puna.tokenizer import TokenizerError, load_tokenizer
from tests.tokenizer.vocabularies import UNUSED, all_pairs_bpe, sentencepiece

pytestmark = pytest.mark.native

BPE = load_tokenizer(all_pairs_bpe("gpt-2"))
SENTENCEPIECE = load_tokenizer(sentencepiece())


def stream(tokenizer, tokens):
    detokenizer = tokenizer.detokenizer()
    return [*map(detokenizer.add, tokens), detokenizer.flush()]


def byte_tokens(data):
    return [SENTENCEPIECE.find(f"<0x{byte:02X}>") for byte in data]


def test_characters_come_out_when_they_are_complete():
    assert stream(SENTENCEPIECE, byte_tokens("é🙂".encode())) == ["", "é", "", "", "", "🙂", ""]


def test_bytes_that_are_no_text_become_replacement_characters():
    assert "".join(stream(SENTENCEPIECE, byte_tokens(b"a\xffb\xe2\x82c\xf0\x9f"))) == "a\ufffdb\ufffdc\ufffd"


@given(st.lists(st.integers(0, BPE.vocab_size - 1), max_size=30))
def test_any_tokens_stream_as_they_decode(tokens):
    assert "".join(stream(BPE, tokens)) == BPE.decode(tokens, skip_special=True)


def test_control_tokens_are_not_shown_but_user_defined_ones_are():
    tokens = BPE.encode("<|im_start|>a<tool>")
    assert stream(BPE, tokens) == ["", "a", "<tool>", ""]
    assert BPE.decode(tokens) == "<|im_start|>a<tool>"
    assert BPE.decode(tokens, skip_special=True) == "a<tool>"
    assert [BPE.is_special(token) for token in tokens] == [True, False, False]


def test_space_that_encoding_added_goes_when_the_whole_is_decoded():
    tokens = SENTENCEPIECE.encode(" the world")
    assert SENTENCEPIECE.decode(tokens) == "<s> the world"
    assert SENTENCEPIECE.decode(tokens, skip_special=True) == " the world"
    assert SENTENCEPIECE.decode([]) == ""


def test_space_stays_in_a_continuation():
    tokens = SENTENCEPIECE.encode("the world", add_special=False)
    assert "".join(stream(SENTENCEPIECE, tokens)) == " the world"


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
    for use in (BPE.token_bytes, BPE.is_special, BPE.token_text, BPE.detokenizer().add):
        with pytest.raises(TokenizerError, match=f"token {token} is not in the vocabulary"):
            use(token)
