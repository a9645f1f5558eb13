"""What happens during one generate or chat request; every face formats these.

`index` is the number of the choice, where a request gets several replies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from puna.chat.messages import ToolCall
from puna.engine.request import TokenLogprob


class Delta(msgspec.Struct):
    """More of the reply. Text that might be part of a tag is held back, its log-probabilities are not."""

    content: str = ""
    thinking: str = ""
    logprobs: list[TokenLogprob] = []
    index: int = 0
    tool_calls: list[ToolCall] = []
    prompt_tokens: int = 0
    """As in Counts, which come at the end."""


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
    cached_tokens: int = 0
    """Prompt tokens whose KV was cached."""
    index: int = 0
    stop_string: str = ""
    """What ended the reply, if it was one of the request's stop strings."""


class Rendered(msgspec.Struct):
    """The prompt, for who asked to see it instead of a reply."""

    prompt: str
    num_images: int = 0


Event: TypeAlias = Delta | Finish | Rendered


class Collected(msgspec.Struct):
    """A reply that is complete."""

    content: str
    thinking: str
    logprobs: list[TokenLogprob]
    finish: Finish
    tool_calls: list[ToolCall]


def collect(events: Sequence[Event]) -> list[Collected]:
    """The choices in their order. events: of a request, each of whose choices ended with Finish."""
    deltas: defaultdict[int, list[Delta]] = defaultdict(list)
    for event in events:
        if isinstance(event, Delta):
            deltas[event.index].append(event)
    finishes = sorted((e for e in events if isinstance(e, Finish)), key=lambda finish: finish.index)
    return [_collected(deltas[finish.index], finish) for finish in finishes]


def _collected(deltas: Sequence[Delta], finish: Finish) -> Collected:
    return Collected(
        content="".join(delta.content for delta in deltas),
        thinking="".join(delta.thinking for delta in deltas),
        logprobs=[logprob for delta in deltas for logprob in delta.logprobs],
        finish=finish,
        tool_calls=[call for delta in deltas for call in delta.tool_calls],
    )


def is_whole(first: Event) -> bool:
    """Whether the reply that begins so is never streamed: nothing is generated."""
    return not isinstance(first, Delta) and not (isinstance(first, Finish) and first.counts)
