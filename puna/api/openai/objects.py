"""The objects that OpenAI's clients get."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Generic, Literal, TypeVar

import msgspec

from puna.api.ollama.reply import AlternativeReply, logprob_replies
from puna.api.openai.calls import arguments_text
from puna.api.openai.completions.text_logprobs import TextLogprobs
from puna.api.replying.events import Finish
from puna.chat.messages import ToolCall
from puna.engine.request import TokenLogprob

_FINGERPRINT = "fp_ollama"  # clients may look for it


class PromptTokensDetails(msgspec.Struct):
    """`prompt_tokens_details`. Cached are tokens whose KV was there before the request came."""

    cached_tokens: int


class Usage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Tokens of prompts, replies and both."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None


class TokenLogprobs(msgspec.Struct):
    """A token that was drawn; unlike Ollama's, its list of alternatives is always there."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[AlternativeReply]


class ChoiceLogprobs(msgspec.Struct):
    """`logprobs` of a choice."""

    content: list[TokenLogprobs]


class CalledFunction(msgspec.Struct):
    """arguments: a JSON text."""

    name: str
    arguments: str


class CallObject(msgspec.Struct, kw_only=True):
    """A call, complete in a stream as well."""

    index: int
    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The assistant's message, or a piece of it. Everything may be absent; an empty content need not be."""

    role: str | None = None
    content: str | None = None
    reasoning: str = ""
    tool_calls: Sequence[CallObject] = ()
    function_call: CalledFunction | None = None
    """In place of tool_calls in OpenAI's first API of functions."""


class ChatChoice(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`message` in a whole reply, `delta` in a chunk."""

    index: int = msgspec.field(name="index")
    message: Message | msgspec.UnsetType = msgspec.UNSET
    delta: Message | msgspec.UnsetType = msgspec.UNSET
    finish_reason: str | None
    logprobs: ChoiceLogprobs | None = None


class TextChoice(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`text` of a completion or a chunk of it."""

    text: str
    index: int
    finish_reason: str | None
    logprobs: TextLogprobs | None = None


Choice = TypeVar("Choice", ChatChoice, TextChoice)


class Completion(msgspec.Struct, Generic[Choice], kw_only=True, omit_defaults=True):
    """A reply or a chunk of one."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: Sequence[Choice]
    usage: Usage | None = None


class Head(msgspec.Struct):
    """What all chunks of a reply have in common; model: as requested."""

    id: str
    object: str
    model: str
    created: int

    @classmethod
    def new(cls, prefix: str, object_name: str, model: str) -> Head:
        return cls(f"{prefix}-{secrets.token_hex(12)}", object_name, model, int(time.time()))

    def encode(self, choices: Sequence[Choice], usage: Usage | None = None) -> bytes:
        """A reply, or a chunk."""
        return msgspec.json.encode(
            Completion(
                id=self.id,
                object=self.object,
                created=self.created,
                model=self.model,
                system_fingerprint=_FINGERPRINT,
                choices=choices,
                usage=usage,
            )
        )


NO_USAGE = Usage(prompt_tokens=0, completion_tokens=0, total_tokens=0)


def usage_of(finishes: Sequence[Finish], replies_per_prompt: int) -> Usage:
    """finishes: of all replies, in any order. A prompt counts once, however many replies it got.

    Of its replies, the one that found least was the first: the others found what that one had computed.
    """
    ordered = sorted(finishes, key=lambda finish: finish.index)
    counts = [finish.counts for finish in ordered if finish.counts is not None]
    if not counts:  # the model was only loaded
        return NO_USAGE
    prompts = range(0, len(ordered), replies_per_prompt)
    prompt = sum(counts[first].prompt_eval_count for first in prompts)
    completion = sum(count.eval_count for count in counts)
    cached = sum(
        min(finish.cached_tokens for finish in ordered[first : first + replies_per_prompt])
        for first in prompts
    )
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion,
        prompt_tokens_details=PromptTokensDetails(cached),
    )


def call_objects(calls: Sequence[ToolCall]) -> list[CallObject]:
    """Calls of a reply."""
    return [
        CallObject(index=call.function.index or 0, id=call.id or "", function=called_function(call))
        for call in calls
    ]


def called_function(call: ToolCall) -> CalledFunction:
    """As text."""
    return CalledFunction(call.function.name, arguments_text(call))


def token_logprobs(logprobs: Sequence[TokenLogprob]) -> list[TokenLogprobs]:
    """Of tokens that were drawn."""
    replies = logprob_replies(logprobs)
    return [TokenLogprobs(reply.token, reply.logprob, reply.bytes, reply.top_logprobs) for reply in replies]


def choice_logprobs(logprobs: Sequence[TokenLogprob]) -> ChoiceLogprobs | None:
    """None if there are none."""
    return ChoiceLogprobs(token_logprobs(logprobs)) if logprobs else None
