"""Tokens become text as they come: whole characters, and nothing of a stop string."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.daemon.generation import GenerationJob, stream_text
from puna.daemon.residency import ServerBusy
from puna.engine.request import GenerationError, RequestStats, SamplingParams, StepOutput, TokenLogprob
from puna.tokenizer import Detokenizer

pytestmark = pytest.mark.unit


class WordTokenizer:
    """Token 1000 + n is the n-th word; smaller ones are bytes."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def token_bytes(self, token):
        return self.words[token - 1000].encode() if token >= 1000 else bytes([token])

    def detokenizer(self):
        return Detokenizer(self.token_bytes)


class Engine:
    """Plays the engine's part: one step per list of tokens; `cancel` is heard one step late."""

    def __init__(self, steps, reason="stop", *, logprobs=False, error=None) -> None:
        self.steps = steps
        self.reason = reason
        self.error = error
        self.logprobs = logprobs
        self.cancelled = False
        self.closed = False

    async def cancel(self):
        self.cancelled = True

    async def outputs(self):
        drawn = 0
        try:
            for step in self.steps:
                heard = self.cancelled
                logprobs = [
                    TokenLogprob(t, -1.0, top=[TokenLogprob(t, -1.0), TokenLogprob(65, -2.0)]) for t in step
                ]
                yield StepOutput(request_id="r", tokens=step, logprobs=logprobs if self.logprobs else None)
                drawn += len(step)
                if heard:
                    yield self._last(drawn, "cancelled")
                    return
            yield self._last(drawn + 1, "cancelled" if self.cancelled else self.reason)
        finally:
            self.closed = True

    def _last(self, drawn, reason):
        stats = RequestStats(3, 1, 10, drawn, 20)
        return StepOutput(request_id="r", finish_reason=reason, error=self.error, stats=stats)


def generate(engine, tokenizer, *, stop=(), num_logprobs=-1):
    job = GenerationJob(prompt=[1, 2, 3], sampling=SamplingParams(num_logprobs=num_logprobs), stop=list(stop))

    async def collect():
        async with aclosing(stream_text(engine.outputs(), engine.cancel, tokenizer, job)) as chunks:
            return [chunk async for chunk in chunks]

    return asyncio.run(collect())


def text_of(chunks):
    return "".join(chunk.text for chunk in chunks)


def tokens_of(chunks):
    return [token for chunk in chunks for token in chunk.tokens]


HELLO = WordTokenizer("Hello", ",", " wor", "ld", "!")


def test_each_step_becomes_one_chunk_and_the_last_one_has_the_finish():
    chunks = generate(Engine([[1000], [1001, 1002], [1003]]), HELLO)
    assert [chunk.text for chunk in chunks] == ["Hello", ", wor", "ld", ""]
    assert [chunk.tokens for chunk in chunks] == [[1000], [1001, 1002], [1003], []]
    assert [chunk.finish is not None for chunk in chunks] == [False, False, False, True]
    assert chunks[-1].finish.reason == "stop"
    assert chunks[-1].finish.stats == RequestStats(3, 1, 10, 5, 20)
    assert chunks[0].logprobs is None


def test_length_is_reported():
    assert generate(Engine([[1000]], "length"), HELLO)[-1].finish.reason == "length"


def test_characters_are_never_split():
    data = "é漢🦙".encode()
    chunks = generate(Engine([[byte] for byte in data]), HELLO)
    assert [chunk.text for chunk in chunks] == ["é", "漢", "🦙", ""]
    assert tokens_of(chunks) == list(data)


def test_incomplete_character_at_the_end_becomes_a_replacement_character():
    chunks = generate(Engine([[1000], *([byte] for byte in "🦙".encode()[:2])], "length"), HELLO)
    assert text_of(chunks) == "Hello\ufffd"
    assert tokens_of(chunks) == [1000, *"🦙".encode()[:2]]


def test_text_before_a_stop_string_is_sent_and_the_request_is_cancelled():
    engine = Engine([[1000], [1001], [1002], [1003], [1004]])
    chunks = generate(engine, HELLO, stop=["world"])
    assert text_of(chunks) == "Hello, "
    assert engine.cancelled
    assert engine.closed
    finish = chunks[-1].finish
    assert finish.reason == "stop"
    assert finish.stats.prompt_tokens == 3
    assert (
        finish.stats.generated_tokens == 4
    )  # what was drawn before the stop was known counts, later ones not
    assert tokens_of(chunks) == [1000, 1001, 1002]  # " wor" has a part of it in the text


def test_what_only_looked_like_a_stop_string_is_sent_after_all():
    chunks = generate(Engine([[1000], [1001], [1002], [1000]]), HELLO, stop=["word"])
    assert [chunk.text for chunk in chunks] == ["Hello", ",", " ", "worHello", ""]
    assert tokens_of(chunks) == [1000, 1001, 1002, 1000]


def test_held_back_text_is_sent_at_the_end():
    engine = Engine([[1000], [1002]])
    chunks = generate(engine, HELLO, stop=["world"])
    assert text_of(chunks) == "Hello wor"
    assert tokens_of(chunks) == [1000, 1002]
    assert not engine.cancelled


def test_stop_string_in_the_step_that_ends_the_request_needs_no_cancel():
    engine = Engine([[1000], [1001, 1002, 1003, 1004]], "length")
    chunks = generate(engine, HELLO, stop=["!"])
    assert text_of(chunks) == "Hello, world"
    assert chunks[-1].finish.reason == "stop"
    assert chunks[-1].finish.stats.generated_tokens == 5


def test_tokens_after_the_stop_string_within_a_step_are_dropped():
    chunks = generate(Engine([[1000, 1001, 1002, 1003]]), HELLO, stop=[","])
    assert text_of(chunks) == "Hello"
    assert tokens_of(chunks) == [1000]
    assert chunks[-1].finish.stats.generated_tokens == 2


def test_logprobs_stay_beside_their_tokens():
    chunks = generate(
        Engine([[1000], [1002], [1003], [195], [169]], logprobs=True), HELLO, stop=["world"], num_logprobs=2
    )
    assert text_of(chunks) == "Hello "
    for chunk in chunks:
        assert len(chunk.logprobs) == len(chunk.tokens)
    first = chunks[0].logprobs[0]
    assert (first.token, first.bytes, first.logprob) == ("Hello", b"Hello", -1.0)
    assert [(top.token, top.logprob) for top in first.top] == [("Hello", -1.0), ("A", -2.0)]


def test_bytes_of_half_a_character_are_exact_in_logprobs():
    chunks = generate(Engine([[195], [169]], logprobs=True), HELLO, num_logprobs=0)
    assert [(entry.token, entry.bytes) for entry in chunks[0].logprobs] == [
        ("\ufffd", b"\xc3"),
        ("\ufffd", b"\xa9"),
    ]


@pytest.mark.parametrize(
    ("reason", "error", "text"),
    [("error", "too hot", "too hot"), ("cancelled", None, "the request was cancelled")],
)
def test_end_that_nobody_asked_for_is_an_error(reason, error, text):
    engine = Engine([[1000]], reason, error=error)
    with pytest.raises(GenerationError, match=text):
        generate(engine, HELLO)
    assert engine.closed


def test_full_queue_is_a_busy_server():
    engine = Engine([], "busy")
    with pytest.raises(
        ServerBusy, match=r"server busy, please try again\.  maximum pending requests exceeded"
    ):
        generate(engine, HELLO)
    assert engine.closed


def test_closing_the_stream_closes_the_engines():
    engine = Engine([[1000]] * 10)

    async def main():
        chunks = stream_text(engine.outputs(), engine.cancel, HELLO, GenerationJob(prompt=[1]))
        await anext(chunks)
        await chunks.aclose()

    asyncio.run(main())
    assert engine.closed


LETTERS = WordTokenizer("a", "b", "ab", "ba", "aab", "é", "\n")


@given(
    steps=st.lists(st.lists(st.integers(1000, 1006), min_size=1, max_size=3), max_size=12),
    stop=st.lists(st.text("abé\n", min_size=1, max_size=4), max_size=3),
)
def test_text_is_what_comes_before_the_first_stop_string(steps, stop):
    whole = b"".join(LETTERS.token_bytes(token) for step in steps for token in step).decode()
    chunks = generate(Engine(steps, logprobs=True), LETTERS, stop=stop, num_logprobs=0)
    text = text_of(chunks)
    assert whole.startswith(text)
    assert not any(string in text for string in stop)
    # Found at the earliest token: the text ends where a stop string begins, or is whole.
    assert text == whole or any(whole[len(text) :].startswith(string) for string in stop)
    tokens = tokens_of(chunks)
    assert tokens == [token for step in steps for token in step][: len(tokens)]
    covered = b"".join(map(LETTERS.token_bytes, tokens)).decode()
    assert covered.startswith(text)
    assert [entry.bytes for chunk in chunks for entry in chunk.logprobs] == list(
        map(LETTERS.token_bytes, tokens)
    )
