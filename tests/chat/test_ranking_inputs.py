"""Queries and documents as models that rank want them."""

from __future__ import annotations

import pytest

from puna.chat.errors import PromptError
from puna.chat.ranking_inputs import PairsRequest, encode_pairs
from puna.tokenizer import Tokenizer, load_tokenizer
from tests.tokenizer.vocabularies import all_pairs_bpe, unigram, word_pieces

pytestmark = pytest.mark.unit

BERT = load_tokenizer(word_pieces())
XLM_ROBERTA = load_tokenizer(unigram(add_bos_token=True, add_sep_token=True))
DECODER = load_tokenizer(all_pairs_bpe("qwen2"))
TEMPLATE = "<|im_start|>Q: {query}\nD: {document}<|im_end|>"


def pairs(
    tokenizer: Tokenizer,
    *documents: str,
    query: str = "the world",
    limit: int = 64,
    template: str | None = None,
):
    request = PairsRequest(query=query, documents=[*documents], context_length=limit)
    found = encode_pairs(request, tokenizer, template)
    return [[tokenizer.token_text(token) for token in tokens] for tokens in found]


def test_bert_has_a_separator_between_both():
    assert pairs(BERT, "hello", "a") == [
        ["[CLS]", "▁the", "▁world", "[SEP]", "▁hello"],
        ["[CLS]", "▁the", "▁world", "[SEP]", "▁a"],
    ]


def test_models_that_end_texts_end_both():
    query, document = (XLM_ROBERTA.encode(text, add_special=False) for text in ("the world", "the"))
    request = PairsRequest(query="the world", documents=["the"], context_length=64)
    assert encode_pairs(request, XLM_ROBERTA, None) == [[3, *query, 1, 1, *document, 1]]


def test_special_tokens_in_texts_are_text():
    (tokens,) = pairs(BERT, "[SEP]", query="[CLS]")
    assert tokens.count("[SEP]") == tokens.count("[CLS]") == 1


def test_document_is_cut_where_it_does_not_fit():
    assert pairs(BERT, "a " * 90, limit=7) == [["[CLS]", "▁the", "▁world", "[SEP]", "▁a", "▁a", "▁a"]]
    (tokens,) = pairs(XLM_ROBERTA, "the " * 90, limit=20)
    assert (len(tokens), tokens[-1]) == (20, "</s>")
    with pytest.raises(PromptError, match="exceeds maximum context length"):
        pairs(BERT, "a", limit=4)


def test_template_has_places_for_both():
    for document in ("d", "{query} {document}"):
        (tokens,) = encode_pairs(
            PairsRequest(query="q {document}", documents=[document], context_length=99), DECODER, TEMPLATE
        )
        assert DECODER.decode(tokens) == f"<|im_start|>Q: q {{document}}\nD: {document}<|im_end|>"


def test_document_in_a_template_is_cut_where_it_does_not_fit():
    for document in ("hello world " * 50, "日本語" * 50, "<|im_start|>" * 50):
        (tokens,) = pairs(DECODER, document, limit=40, template=TEMPLATE)
        assert 30 < len(tokens) <= 40
        assert (tokens[0], tokens[-1]) == ("<|im_start|>", "<|im_end|>")
    with pytest.raises(PromptError, match="exceeds maximum context length"):
        pairs(DECODER, "a", limit=4, template=TEMPLATE)
