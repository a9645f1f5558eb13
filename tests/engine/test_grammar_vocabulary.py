"""What a grammar forces can be written with any vocabulary."""

from __future__ import annotations

import pytest
from llguidance import LLMatcher

from puna.engine.grammars.vocabulary import grammar_tokenizer
from puna.tokenizer import Tokenizer, build_vocabulary
from tests.tokenizer.vocabularies import sentencepiece

pytestmark = pytest.mark.native


def test_text_that_a_vocabulary_reads_as_another() -> None:
    tokenizer = Tokenizer.from_blob(build_vocabulary(sentencepiece()))
    text = "the▁world"
    assert tokenizer.decode(tokenizer.encode_within(text)) == "the world"
    matcher = LLMatcher(grammar_tokenizer(tokenizer), f'%llguidance {{}}\nstart: "{text}" /[0-9]/')
    forced = matcher.compute_ff_tokens()
    assert b"".join(map(tokenizer.token_bytes, forced)) == text.encode()
    assert matcher.try_consume_tokens(forced) == len(forced)
    matcher.compute_bitmask()
    assert not matcher.is_error(), matcher.get_error()
