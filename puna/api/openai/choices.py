"""How many prompts a request has, how many replies each gets, and which of them are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from puna.api.errors import ApiError
from puna.api.openai.completions.schema import CompletionRequest
from puna.api.openai.objects import Usage, usage_of
from puna.api.replying.events import Collected, Finish

_MAX_CHOICES = 128
_MAX_REPLIES = 1024
"""Of one request, over all of its prompts."""

PromptInput = str | list[int]


@dataclass(frozen=True, slots=True)
class Choices:
    """best_of: replies to each prompt; n: those of them that are shown."""

    n: int = 1
    best_of: int = 1

    def shown(self, replies: Sequence[Collected]) -> list[Collected]:
        """replies: all, in their order. Of each prompt the n likeliest, by log-probability per token."""
        prompts = [replies[start : start + self.best_of] for start in range(0, len(replies), self.best_of)]
        return [reply for prompt in prompts for reply in self._best(prompt)]

    def _best(self, replies: Sequence[Collected]) -> Sequence[Collected]:
        if self.n == self.best_of:
            return replies
        return sorted(replies, key=_mean_logprob, reverse=True)[: self.n]

    def usage(self, finishes: Sequence[Finish]) -> Usage:
        """finishes: of all replies."""
        return usage_of(finishes, self.best_of)


def _mean_logprob(reply: Collected) -> float:
    """A reply without any token comes last: it says nothing."""
    values = [token.logprob for token in reply.logprobs]
    return fsum(values) / len(values) if values else float("-inf")


def chat_choices(n: int) -> Choices:
    """ApiError (400)."""
    _check_count("n", n)
    return Choices(n, n)


def completion_choices(request: CompletionRequest, num_prompts: int) -> Choices:
    """ApiError (400)."""
    best_of = request.n if request.best_of is None else request.best_of
    _check_count("n", request.n)
    _check_count("best_of", best_of)
    if best_of < request.n:
        raise ApiError(400, f"best_of ({best_of}) must not be less than n ({request.n})")
    if request.stream and best_of > request.n:
        raise ApiError(400, "best_of cannot be streamed: which replies are the best is known at the end")
    if num_prompts * best_of > _MAX_REPLIES:
        raise ApiError(400, f"{num_prompts} prompts with {best_of} replies each are more than {_MAX_REPLIES}")
    return Choices(request.n, best_of)


def _check_count(name: str, value: int) -> None:
    if not 1 <= value <= _MAX_CHOICES:
        raise ApiError(400, f"{name} must be between 1 and {_MAX_CHOICES}")


def parse_prompts(prompt: Any) -> list[PromptInput]:
    """A text, tokens, or a list of these. ApiError (400).

    An empty text alone asks for the model to be loaded; among others it is an error.
    """
    if _is_prompt(prompt):
        prompts = [prompt]
    elif isinstance(prompt, list) and all(_is_prompt(item) for item in prompt):
        prompts = prompt
    else:
        raise ApiError(400, "prompt must be a string, a list of tokens, or a list of these")
    if prompts != [""] and not (prompts and all(prompts)):
        raise ApiError(400, "prompt must not be empty")
    return prompts


def _is_prompt(value: Any) -> bool:
    if isinstance(value, list):
        return all(type(item) is int for item in value)  # a boolean is none
    return isinstance(value, str)
