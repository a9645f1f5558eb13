"""Streaming chats in OpenAI's protocol, which both servers speak."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from benchmarks.agents.conversation import Message

_TIMEOUT_S = 600
_TEXTS = "reasoning", "reasoning_content", "content"
"""Thoughts, in puna and in llama.cpp, and what is said."""


class BrokenOff(Exception):
    """The server gave up in the middle of an answer; asked again it may do better."""


@dataclass(frozen=True)
class Answer:
    """first_token_s: from the request to the first piece of text."""

    text: str
    first_token_s: float
    prompt_tokens: int
    cached_tokens: int

    @property
    def computed_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens


def chat(
    url: str, model: str, messages: Sequence[Message], *, thinks: bool, max_tokens: int, seed: int = 0
) -> Answer:
    """Greedy. Raises BrokenOff, or RuntimeError for a refusal."""
    body = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "seed": seed,
        "max_tokens": max_tokens,
        "reasoning_effort": "high" if thinks else "none",
        "chat_template_kwargs": {"enable_thinking": thinks},  # llama.cpp's way to say it
    }
    sent, first, text, usage = time.perf_counter(), 0.0, "", None
    for event in _events(url, body):
        for choice in event.get("choices", ()):
            delta = choice["delta"]
            if piece := "".join(delta.get(key) or "" for key in _TEXTS):
                first = first or time.perf_counter()
                text += piece
        usage = event.get("usage") or usage
    if usage is None or not first:
        raise BrokenOff("the answer has no end")
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    return Answer(text, first - sent, usage["prompt_tokens"], cached)


def _events(url: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_S)
    with closing(connection):
        try:
            connection.request(
                "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
            )
            reply = connection.getresponse()
            if reply.status >= 500:
                raise BrokenOff(f"{reply.status} {reply.read().decode(errors='replace')}")
            if reply.status != 200:
                raise RuntimeError(f"{url}: {reply.status} {reply.read().decode(errors='replace')}")
            for line in reply:
                if line.startswith(b"data: {"):
                    event: dict[str, Any] = json.loads(line[len(b"data: ") :])
                    if "error" in event:
                        raise BrokenOff(str(event["error"]))
                    yield event
        except (OSError, http.client.HTTPException) as error:
            raise BrokenOff(str(error)) from error
