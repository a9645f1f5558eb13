"""What a reply's text must be: decoded whole, searched naively."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

import numpy as np

from puna._native import TextStream, TokenTable, add_tokens

MOST_REPEATS = 30


@dataclass(frozen=True)
class Reply:
    text: str
    tokens: list[int]
    num_taken: int
    ends: bool


def table_of(pieces: list[bytes], hidden: frozenset[int] = frozenset()) -> TokenTable:
    flags = bytes(token in hidden for token in range(len(pieces)))
    return TokenTable(TokenTable.build(pieces, flags))


def first_stop(text: str, stops: list[str]) -> int | None:
    """Where the stop string begins that is complete first, of two the longer."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if stop and text[:end].endswith(stop)]
        if starts:
            return min(starts)
    return None


def expected(pieces: list[bytes], stops: list[str], tokens: list[int]) -> Reply:
    """The whole reply, token by token."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text, starts, run = "", [], 0
    for index, token in enumerate(tokens):
        starts.append(len(text))
        text += _decoded(decoder, pieces[token])
        if (stop := first_stop(text, stops)) is not None:
            sent = [t for t, start in zip(tokens, starts, strict=False) if start < stop]
            return Reply(text[:stop], sent, index + 1, True)
        run = run + 1 if index and pieces[token].strip() == pieces[tokens[index - 1]].strip() else 1
        if run > MOST_REPEATS:
            return Reply(text, tokens[: index + 1], index + 1, True)
    return Reply(text, tokens, len(tokens), False)


def _decoded(decoder: codecs.IncrementalDecoder, piece: bytes) -> str:
    text, (held, _) = decoder.decode(piece), decoder.getstate()
    if held[:1] == b"\xed" and held[1:2] >= b"\xa0":
        # Python waits for the rest of half a surrogate pair, which can never become a character.
        decoder.reset()
        text += "\ufffd" * len(held)
    return text


def added(state: TextStream, tokens: list[int], *, is_last: bool = False) -> tuple[str, list[int], int, bool]:
    """By what the stream gets on: text, the tokens whose text begins in it, how many were taken, whether the
    reply ends before its last token.
    """
    num_left = len(tokens) + (not is_last)
    drawn, starts = np.array(tokens, dtype=np.int32), np.array([0, len(tokens)], dtype=np.int32)
    [(_, num_drawn, reason, text, shown)] = add_tokens([state], drawn, starts, [num_left])
    return text, shown, num_drawn, reason == "stop"


def stream(table: TokenTable | None, stops: list[str], steps: list[list[int]]) -> Reply:
    """The same as it comes, in steps; what comes out is joined."""
    state = TextStream(table, stops)
    text, tokens, num_taken, ends = "", [], 0, False
    for index, step in enumerate(steps):
        piece, sent, taken, ends = added(state, step, is_last=index == len(steps) - 1)
        text, tokens, num_taken = text + piece, tokens + sent, num_taken + taken
        if ends:
            break
    return Reply(text, tokens, num_taken, ends)
