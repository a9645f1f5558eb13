"""Whether llguidance can use a grammar, within limits: here, before the engine is asked to."""

from __future__ import annotations

import re
import time
from functools import cache
from typing import TYPE_CHECKING

from puna.chat.errors import PromptError
from puna.engine.grammars.limits import MAX_GRAMMAR_CHARS, PARSER_LIMITS

if TYPE_CHECKING:  # who only asks for prompts need not load it
    from llguidance import LLMatcher, LLTokenizer

_NUM_BYTES = 256
_NUM_TRIED = 16
"""Tokens with which a grammar is tried."""
_MAX_CPU_S = 1.0
"""For reading and trying it: what takes long here holds up others in the engine."""
_MAX_REASON_CHARS = 300
_CONTROL = re.compile(r"<\[\d+\]>")
_WHERE = re.compile(r"^(at )?\d+\(\d+\): |failed to compile JSON schema: ")


def check_grammar(grammar: str) -> None:
    """Raises PromptError."""
    if len(grammar) > MAX_GRAMMAR_CHARS:
        raise PromptError(f"the reply's grammar has {len(grammar)} characters, more than {MAX_GRAMMAR_CHARS}")
    if error := grammar_error(grammar):
        raise PromptError(f"the grammar cannot be used: {error}")


def grammar_error(grammar: str) -> str:
    """Why it cannot be used; empty if it can. Which control tokens it names does not matter."""
    from llguidance import LLMatcher, LLParserLimits

    anywhere = _CONTROL.sub(f"<[{_ByteVocabulary.control}]>", grammar)
    begin_s = time.thread_time()
    limits = LLParserLimits(**PARSER_LIMITS, verbose_errors=False)
    matcher = LLMatcher(_byte_tokenizer(), anywhere, log_level=0, limits=limits)
    for turn in range(_NUM_TRIED):
        if matcher.is_error():
            return _reason(matcher.get_error())
        if time.thread_time() - begin_s > _MAX_CPU_S:
            return "it takes too long to follow"
        if matcher.is_stopped() or (byte := _allowed_byte(matcher, turn)) is None:
            return "" if turn else "nothing fits it"
        matcher.consume_token(byte)
    return ""


def _allowed_byte(matcher: LLMatcher, turn: int) -> int | None:
    """Not the same in every turn; None if only a control token fits."""
    allowed = int.from_bytes(matcher.compute_bitmask()[: _NUM_BYTES // 8], "little")
    begin = turn * 37 % _NUM_BYTES
    behind = allowed >> begin
    first = behind or allowed
    return (first & -first).bit_length() - 1 + (begin if behind else 0) if first else None


class _ByteVocabulary:
    """A token for each byte, one that stands for all control tokens, and one that ends replies."""

    control = 256
    eos_token_id = 257
    bos_token_id = None
    tokens = (*(bytes([value]) for value in range(256)), b"<control>", b"<end>")
    special_token_ids = (control, eos_token_id)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@cache
def _byte_tokenizer() -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_ByteVocabulary()))


def _reason(error: str) -> str:
    """In one line, without the grammar's own text."""
    lines = [line for line in error.splitlines() if line.strip()]
    told = next((line for line in lines if line.startswith("error: ")), lines[0] if lines else "unknown")
    return _WHERE.sub("", told.removeprefix("error: "))[:_MAX_REASON_CHARS]
