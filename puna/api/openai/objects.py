"""The objects that OpenAI's clients get."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import msgspec

from puna.api.events import Counts
from puna.api.ollama.reply import AlternativeReply, logprob_replies
from puna.daemon.generation import TextLogprob

_FINGERPRINT = "fp_ollama"  # clients may look for it
_NUM_IDS = 999


class Usage(msgspec.Struct):
    """Tokens of prompt, reply and both."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class TokenLogprobs(msgspec.Struct):
    """A token that was drawn; unlike Ollama's, its list of alternatives is always there."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[AlternativeReply]


class ChoiceLogprobs(msgspec.Struct):
    """`logprobs` of a choice."""

    content: list[TokenLogprobs]


class Message(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The assistant's message, or a piece of it. Everything may be absent; an empty content need not be."""

    role: str | None = None
    content: str | None = None
    reasoning: str = ""


class ChatChoice(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`message` in a whole reply, `delta` in a chunk."""

    index: int = msgspec.field(name="index")
    message: Message | msgspec.UnsetType = msgspec.UNSET
    delta: Message | msgspec.UnsetType = msgspec.UNSET
    finish_reason: str | None
    logprobs: ChoiceLogprobs | None = None


class TextChoice(msgspec.Struct, kw_only=True):
    """`text` of a completion or a chunk of it."""

    text: str
    index: int
    finish_reason: str | None


class Completion(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A reply or a chunk of one."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: Sequence[ChatChoice | TextChoice]
    usage: Usage | None = None


class Head(msgspec.Struct):
    """What all chunks of a reply have in common; model: as requested."""

    id: str
    object: str
    model: str
    created: int

    @classmethod
    def new(cls, prefix: str, object_name: str, model: str) -> Head:
        return cls(f"{prefix}-{random.randrange(_NUM_IDS)}", object_name, model, int(time.time()))

    def encode(self, choices: Sequence[ChatChoice | TextChoice], usage: Usage | None = None) -> bytes:
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


def usage_of(counts: Counts | None) -> Usage:
    """Zeros if nothing was generated."""
    if counts is None:
        return Usage()
    prompt, completion = counts.prompt_eval_count, counts.eval_count
    return Usage(prompt, completion, prompt + completion)


def choice_logprobs(logprobs: Sequence[TextLogprob]) -> ChoiceLogprobs | None:
    """None if there are none."""
    if not logprobs:
        return None
    replies = logprob_replies(logprobs)
    return ChoiceLogprobs(
        [TokenLogprobs(reply.token, reply.logprob, reply.bytes, reply.top_logprobs) for reply in replies]
    )
