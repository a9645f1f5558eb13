"""Asks llguidance what a grammar accepts; its vocabulary is bytes, some words and control tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import llguidance

CONTROLS = ("<|end|>", "<|call|>", "[CALLS]", "<｜tool▁calls▁begin｜>")
"""The first ends replies."""
_WORDS = ("<tool_call>", '{"', '":', '"}', "}}", '"}}', "}}\n", ' {"', "\n\n", "hello", " name", "é", "😀")
_BYTES = [bytes([value]) for value in range(256)]
_TOKENS = [*_BYTES, *(word.encode() for word in _WORDS), *(control.encode() for control in CONTROLS)]
_CONTROL_IDS = {control: len(_TOKENS) - len(CONTROLS) + index for index, control in enumerate(CONTROLS)}
_PIECE = re.compile("|".join(map(re.escape, sorted(CONTROLS, key=len, reverse=True))))


class _Vocabulary:
    eos_token_id = _CONTROL_IDS[CONTROLS[0]]
    bos_token_id = None
    tokens = _TOKENS
    special_token_ids = tuple(_CONTROL_IDS.values())

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


def find_control(text: str) -> int | None:
    return _CONTROL_IDS.get(text)


def fits(grammar: str, text: str) -> bool:
    """Whether text (in which control tokens are such) is accepted as a whole."""
    verdicts = {_verdict(grammar, text, encode) for encode in (_by_bytes, _by_words)}
    assert len(verdicts) == 1, "it depends on the tokens"
    return verdicts.pop()


def begins(grammar: str, text: str) -> bool:
    """Whether text is the beginning of what is accepted."""
    matcher = _matcher(grammar)
    tokens = _encode(text, _by_words)
    return matcher.try_consume_tokens(tokens) == len(tokens)


def _verdict(grammar: str, text: str, encode: Callable[[str], list[int]]) -> bool:
    matcher = _matcher(grammar)
    tokens = _encode(text, encode)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def _matcher(grammar: str) -> llguidance.LLMatcher:
    matcher = llguidance.LLMatcher(_tokenizer(), grammar)
    assert not matcher.is_error(), matcher.get_error()
    return matcher


@cache
def _tokenizer() -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Vocabulary()))


def _encode(text: str, encode: Callable[[str], list[int]]) -> list[int]:
    tokens, begin = [], 0
    for match in _PIECE.finditer(text):
        tokens += [*encode(text[begin : match.start()]), _CONTROL_IDS[match.group()]]
        begin = match.end()
    return tokens + encode(text[begin:])


def _by_bytes(text: str) -> list[int]:
    return list(text.encode())


def _by_words(text: str) -> list[int]:
    """The longest word first."""
    tokens, rest = [], text.encode()
    while rest:
        token = max((t for t in _TOKENS[: -len(CONTROLS)] if rest.startswith(t)), key=len)
        tokens.append(_TOKENS.index(token))
        rest = rest[len(token) :]
    return tokens
