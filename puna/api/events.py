"""What happens during one generate or chat request; every face formats these."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from puna.daemon.generation import TextLogprob


class Delta(msgspec.Struct):
    """More of the reply. Text that might be part of a tag is held back, its log-probabilities are not."""

    content: str = ""
    thinking: str = ""
    logprobs: list[TextLogprob] = []


class Counts(msgspec.Struct):
    """Durations in nanoseconds, counts in tokens; the fields of every final reply, under Ollama's names."""

    total_duration: int
    load_duration: int
    prompt_eval_count: int
    """Tokens whose KV was cached included."""
    prompt_eval_duration: int
    eval_count: int
    eval_duration: int


class Finish(msgspec.Struct):
    """The end. reason: stop, length; load, unload if there was nothing to generate, and so no counts."""

    reason: str
    counts: Counts | None = None
    context: list[int] = []
    """Tokens of prompt and reply, where generate gives them back."""


class Rendered(msgspec.Struct):
    """The prompt, for who asked to see it instead of a reply."""

    prompt: str


Event: TypeAlias = Delta | Finish | Rendered


class Collected(msgspec.Struct):
    """A reply that is complete."""

    content: str
    thinking: str
    logprobs: list[TextLogprob]
    finish: Finish


def collect(events: list[Event]) -> Collected:
    """events: of a request that ended with Finish."""
    deltas = [event for event in events if isinstance(event, Delta)]
    finish = events[-1]
    assert isinstance(finish, Finish), "a reply without an end"
    return Collected(
        content="".join(delta.content for delta in deltas),
        thinking="".join(delta.thinking for delta in deltas),
        logprobs=[logprob for delta in deltas for logprob in delta.logprobs],
        finish=finish,
    )


def is_whole(first: Event) -> bool:
    """Whether the reply that begins so is never streamed: nothing is generated."""
    return not isinstance(first, Delta) and not (isinstance(first, Finish) and first.counts)
