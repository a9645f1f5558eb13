"""Requests whose answer is known: the same text comes, alone or under load, before a fault and after it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.campaign.clients.http import Answer

MODELS = ("one", "two", "three")
_WORDS = (
    "the",
    "sea",
    "and",
    "a",
    "stone",
    "in",
    "other",
    "hands",
    "than",
    "these:",
    "one,",
    "two,",
    "thirteen",
)


class Ask(NamedTuple):
    """One request."""

    path: str
    body: dict[str, Any]

    @property
    def content(self) -> bytes:
        return json.dumps(self.body).encode()


class Reply(NamedTuple):
    """What an answer says."""

    text: str
    is_done: bool
    """It ended as a reply does."""
    error: str


def asks() -> list[Ask]:
    """On both APIs, of each model: short and long prompts, greedy and drawn with a seed."""
    return [ask for model in MODELS for number in range(2) for ask in _asks_of(model, number)]


def probe(model: str) -> Ask:
    """A short one, by which it is seen whether everything works."""
    options = {"temperature": 0, "num_predict": 8}
    body = {"model": model, "prompt": "the thin", "raw": True, "stream": False, "options": options}
    return Ask("/api/generate", body)


def session_ask(model: str, session: str) -> Ask:
    """A request that continues a session."""
    body: dict[str, Any] = {"model": model, "messages": _messages(f"{session} {_prose(5, 40)}")}
    return Ask("/api/chat", {**body, "options": {"temperature": 0, "num_predict": 12}, "session": session})


def read_reply(ask: Ask, answer: Answer) -> Reply:
    """Raises ValueError for an answer that is neither a reply nor an error in the API's shape."""
    events = list(_events(ask, answer))
    text, error, is_done = "", "", False
    for event in events:
        if "error" in event:
            error = event["error"] if isinstance(event["error"], str) else event["error"]["message"]
        elif "choices" in event:
            is_done |= not ask.body.get("stream")
            for choice in event["choices"]:
                text += choice.get("text") or choice.get("delta", {}).get("content") or ""
        else:
            text += event["message"]["content"] if "message" in event else event["response"]
            is_done |= event["done"]
    if ask.path.startswith("/v1/") and ask.body.get("stream"):
        is_done = answer.content.endswith(b"data: [DONE]\n\n")
    return Reply(text, is_done and answer.is_whole and answer.status == 200, error)


def _events(ask: Ask, answer: Answer) -> Iterator[dict[str, Any]]:
    if answer.status != 200 or not ask.body.get("stream", True):
        if answer.is_whole:
            yield json.loads(answer.content)
        return
    lines = answer.content.decode().split("\n")[:-1]  # what follows the last line break came in part
    if answer.is_whole and not answer.content.endswith(b"\n"):
        raise ValueError("a stream that ends within a line")
    for line in lines:
        data = line.removeprefix("data: ")
        if data and data != "[DONE]":
            yield json.loads(data)


def _asks_of(model: str, number: int) -> Iterator[Ask]:
    varied = {"repeat_penalty": 1.5, "num_predict": 60 + 60 * number}  # such models like to repeat themselves
    greedy, drawn = {"temperature": 0, **varied}, {"temperature": 1, "seed": number, **varied}
    short, long = _prose(number, 6), _prose(number, 240)
    generate = {"model": model, "raw": True, "stream": True}
    yield Ask("/api/generate", {**generate, "prompt": short, "options": drawn})
    yield Ask("/api/generate", {**generate, "prompt": long, "options": greedy})
    yield Ask("/api/chat", {"model": model, "messages": _messages(short), "stream": True, "options": drawn})
    openai = {"model": model, "temperature": 1, "seed": number, "max_tokens": 100, "frequency_penalty": 2}
    yield Ask("/v1/chat/completions", {**openai, "messages": _messages(long), "stream": True})
    yield Ask("/v1/completions", {**openai, "prompt": short, "stream": False})


def _messages(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]


def _prose(number: int, num_words: int) -> str:
    return " ".join(_WORDS[(7 * number + at * (number + 1)) % len(_WORDS)] for at in range(num_words))
