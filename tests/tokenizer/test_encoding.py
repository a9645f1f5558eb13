"""Text to tokens: special tokens first, then words, then merges."""

from __future__ import annotations

import pytest
from hypothesis import given

from puna.tokenizer import Tokenizer, load_tokenizer
from tests.tokenizer.texts import HARD_TEXTS, texts
from tests.tokenizer.vocabularies import all_pairs_bpe, sentencepiece

pytestmark = pytest.mark.native

SENTENCEPIECE = load_tokenizer(sentencepiece(add_bos_token=False))


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return load_tokenizer(all_pairs_bpe("llama-bpe", add_bos_token=False))


def written(tokenizer, text, **flags):
    """The tokens as the vocabulary writes them."""
    return [tokenizer.token_text(token) for token in tokenizer.encode(text, **flags)]


def test_control_tokens_are_found_only_if_asked_for(bpe):
    assert written(bpe, "<|im_end|>") == ["<|im_end|>"]
    assert bpe.find("<|im_end|>") not in bpe.encode("<|im_end|>", parse_special=False)


def test_user_defined_tokens_are_always_found(bpe):
    assert written(bpe, "<tool>", parse_special=False) == ["<tool>"]


def test_longest_special_token_wins_wherever_it_begins(bpe):
    assert written(bpe, "<tool><tool><tool>") == ["<tool><tool>", "<tool>"]
    # "end|><|" would begin earlier, but "<|im_start|>" is longer.
    assert written(bpe, "end|><|im_start|>")[-1] == "<|im_start|>"


def test_bos_and_eos_are_added_if_the_model_wants_them_and_the_caller_too():
    tokenizer = load_tokenizer(all_pairs_bpe("gpt-2", add_bos_token=True, add_eos_token=True))
    assert written(tokenizer, "") == ["<|im_start|>", "<|im_end|>"]
    assert tokenizer.encode("", add_special=False) == []


def test_text_behind_a_special_token_begins_with_a_space_in_sentencepiece():
    assert written(SENTENCEPIECE, "the<|im_end|>the") == ["▁the", "<|im_end|>", "▁the"]
    plain = load_tokenizer(sentencepiece(add_bos_token=False, add_space_prefix=False))
    assert written(plain, "the<|im_end|>the") == ["the", "<|im_end|>", "the"]


def test_text_within_other_text_gets_no_space_in_sentencepiece():
    assert [SENTENCEPIECE.token_text(token) for token in SENTENCEPIECE.encode_within("the")] == ["the"]
    for text in ("the name", " the", "<|im_end|>the", '{"name": "'):
        tokens = SENTENCEPIECE.encode_within(text)
        assert b"".join(map(SENTENCEPIECE.token_bytes, tokens)) == text.encode()


def test_characters_that_sentencepiece_does_not_know_become_bytes():
    assert written(SENTENCEPIECE, "€") == ["▁", "<0xE2>", "<0x82>", "<0xAC>"]


def test_byte_without_a_token_becomes_the_unknown_token():
    metadata = sentencepiece(add_bos_token=False)
    metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.tokens"].index("<0xE2>")] = "<0x00>x"
    metadata["tokenizer.ggml.token_type"] = None
    assert written(load_tokenizer(metadata), "€") == ["▁", "<unk>", "<0x82>", "<0xAC>"]


def test_phi_3_special_tokens_swallow_the_space_behind_them():
    metadata = sentencepiece(add_bos_token=False) | {"general.name": "Phi-3-mini"}
    tokenizer = load_tokenizer(metadata)
    assert written(tokenizer, "<|im_end|> \n the<|im_start|>  ") == ["<|im_end|>", "▁the", "<|im_start|>"]
    assert written(tokenizer, "<s> ") == ["<s>", "▁▁"]


def test_half_surrogate_pairs_are_replacement_characters(bpe):
    for tokenizer in (bpe, SENTENCEPIECE):
        assert tokenizer.encode("a\ud83d b\udcff") == tokenizer.encode("a\ufffd b\ufffd")


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_hard_texts_come_back(bpe, text):
    assert bpe.decode(bpe.encode(text)) == text


@given(texts)
def test_texts_come_back(bpe, text):
    assert bpe.decode(bpe.encode(text)) == text
    assert bpe.decode(bpe.encode(text, parse_special=False)) == text
    plain = SENTENCEPIECE.encode(text, parse_special=False)
    if not any(special in text for special in ("▁", "<tool>", "    ", "ellow", "ñandú")):
        assert SENTENCEPIECE.decode(plain) == text
