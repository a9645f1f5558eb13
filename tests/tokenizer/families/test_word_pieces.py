"""BERT's WordPiece; that all of it is llama.cpp's is for tests/oracle/test_tokens.py."""

from __future__ import annotations

import pytest

from puna.tokenizer import TokenizerError, load_tokenizer
from tests.tokenizer.vocabularies import word_pieces

pytestmark = pytest.mark.native

TOKENIZER = load_tokenizer(word_pieces())


def written(text: str, **keys: object) -> list[str]:
    tokenizer = load_tokenizer(word_pieces(**keys)) if keys else TOKENIZER
    return [tokenizer.token_text(token) for token in tokenizer.encode(text, add_special=False)]


def test_text_stands_between_its_marks():
    assert [TOKENIZER.token_text(token) for token in TOKENIZER.encode("")] == ["[CLS]", "[SEP]"]


def test_words_are_cut_and_made_up_of_the_longest_pieces():
    assert written("the worlds,the\tworld") == ["▁the", "▁world", "s", "▁,", "▁the", "▁world"]
    assert written("日本") == ["▁日", "▁本"]


def test_word_that_pieces_cannot_make_up_is_unknown_as_a_whole():
    assert written("the worldq the") == ["▁the", "[UNK]", "▁the"]


def test_case_and_accents_go_unless_the_file_says_otherwise():
    assert written("HÉLLO") == written("hello")
    assert written("É", **{"normalizer.lowercase": False}) == ["[UNK]"]
    assert written("é", **{"normalizer.lowercase": False}) == ["▁é"]
    assert written("É", **{"normalizer.strip_accents": False}) == ["▁é"]


def test_a_long_word_takes_no_longer_than_many_short_ones():
    assert written("x" * 1_000_001) == ["▁x"] + ["xxxx"] * 250_000
    assert written("x" * 1_000_000 + "q") == ["[UNK]"]


def test_tokens_too_long_to_look_for_are_an_error():
    metadata = word_pieces()
    metadata["tokenizer.ggml.tokens"][9] = "x" * 513
    with pytest.raises(TokenizerError, match="token 9: 513 bytes are more than the limit of 512"):
        load_tokenizer(metadata)


def test_ids_that_the_file_does_not_name_are_those_of_bert():
    metadata = word_pieces()
    for key in ("bos_token_id", "seperator_token_id", "unknown_token_id"):
        del metadata[f"tokenizer.ggml.{key}"]
    tokenizer = load_tokenizer(metadata | {"tokenizer.ggml.cls_token_id": 2})
    assert (tokenizer.begin_id, tokenizer.end_id) == (2, 102)
    assert tokenizer.encode("ю") == [2, 100, 102]
