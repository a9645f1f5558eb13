"""Streaming requests to either server, timed where the client gets them."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol
from urllib.parse import urlsplit

_TIMEOUT_S = 600


@dataclass(frozen=True)
class Usage:
    """What the server says at the end of an answer."""

    prompt_tokens: int
    generated_tokens: int
    generation_s: float
    cached_tokens: int | None = None
    """Of the prompt; puna says it for all requests together, in its metrics."""

    @property
    def rate(self) -> float:
        """Tokens per second of the answer."""
        return self.generated_tokens / self.generation_s


@dataclass
class Stream:
    """One answer as it comes; seconds of the monotonic clock. Another thread may read it meanwhile."""

    sent: float
    arrivals: list[float] = field(default_factory=list)
    """When each piece of text came: one for each step that completed some."""
    text: str = ""
    usage: Usage | None = None
    """None while the answer is incomplete."""
    cancelled: bool = False
    """Set by whoever has seen enough: the next piece of text is the last."""

    @property
    def first_token_s(self) -> float:
        return self.arrivals[0] - self.sent

    @property
    def total_s(self) -> float:
        return self.arrivals[-1] - self.sent

    def gaps(self) -> Iterator[tuple[float, float]]:
        """(begin, end) of each time without text between two pieces of it."""
        return pairwise(list(self.arrivals))

    @property
    def longest_wait_s(self) -> float:
        """For the first piece, or between two."""
        return max(end - begin for begin, end in pairwise([self.sent, *self.arrivals]))


Options = Mapping[str, float]
"""Of Ollama; llama.cpp ignores those that it lacks."""


class Client(Protocol):
    """One of the servers."""

    def stream(
        self, prompt: str, num_tokens: int, options: Options | None = None, stream: Stream | None = None
    ) -> Stream:
        """Greedy by default, at most num_tokens; returns at the end. Thread safe.

        stream: filled as the answer comes; by default a new one.
        """


@dataclass(frozen=True)
class PunaClient:
    """url: of the daemon."""

    url: str
    model: str

    def stream(
        self, prompt: str, num_tokens: int, options: Options | None = None, stream: Stream | None = None
    ) -> Stream:
        stream = stream or Stream(time.perf_counter())
        values = {"temperature": 0, "num_predict": num_tokens, **(options or {})}
        body = {"model": self.model, "prompt": prompt, "raw": True, "options": values}
        for line in _lines(self.url, "/api/generate", body, stream):
            reply = json.loads(line)
            if "error" in reply:
                raise RuntimeError(f"puna: {reply['error']}")
            _take(stream, reply["response"])
            if reply["done"]:
                seconds = reply.get("eval_duration", 0) / 1e9
                stream.usage = Usage(reply["prompt_eval_count"], reply["eval_count"], seconds)
        return _checked(stream)


@dataclass(frozen=True)
class LlamaCppClient:
    """url: of the server."""

    url: str

    def stream(
        self, prompt: str, num_tokens: int, options: Options | None = None, stream: Stream | None = None
    ) -> Stream:
        stream = stream or Stream(time.perf_counter())
        values = {"temperature": 0, "n_predict": num_tokens, "cache_prompt": True, **(options or {})}
        for line in _lines(self.url, "/completion", {"prompt": prompt, "stream": True, **values}, stream):
            if not line.startswith(b"data: "):
                if line.strip() and not line.startswith(b":"):  # a comment, while it has nothing to say yet
                    raise RuntimeError(f"llama.cpp: {line.decode()}")
                continue
            reply = json.loads(line[len(b"data: ") :])
            _take(stream, reply["content"])
            if reply["stop"]:
                t = reply["timings"]
                num_prompt = t["prompt_n"] + t["cache_n"]
                seconds = t["predicted_ms"] / 1e3
                stream.usage = Usage(num_prompt, t["predicted_n"], seconds, cached_tokens=t["cache_n"])
        return _checked(stream)


def stream_all(client: Client, prompts: Sequence[str], num_tokens: int) -> list[Stream]:
    return stream_each([(client, prompt) for prompt in prompts], num_tokens)


def stream_each(
    requests: Sequence[tuple[Client, str]], num_tokens: int, options: Options | None = None
) -> list[Stream]:
    """All at once: every request is there before the first answer ends."""
    barrier = threading.Barrier(len(requests))

    def one(request: tuple[Client, str]) -> Stream:
        client, prompt = request
        barrier.wait()
        return client.stream(prompt, num_tokens, options)

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(one, requests))


def makespan_s(streams: Sequence[Stream]) -> float:
    """From the first request to the last piece of the last answer."""
    return max(s.arrivals[-1] for s in streams) - min(s.sent for s in streams)


def _take(stream: Stream, text: str) -> None:
    if text:
        stream.arrivals.append(time.perf_counter())
        stream.text += text


def _checked(stream: Stream) -> Stream:
    if not stream.cancelled and (stream.usage is None or not stream.arrivals):
        raise RuntimeError("an answer broke off, or is empty")
    return stream


def _lines(url: str, path: str, body: dict[str, Any], stream: Stream) -> Iterator[bytes]:
    """The lines of a streamed reply, until its end or that of the interest in it."""
    # Not httpx: its parser is Python, and the client runs on the processors that it measures.
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT_S)
    with closing(connection):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"{url}{path}: {reply.status} {reply.read().decode(errors='replace')}")
        for line in reply:
            if stream.cancelled:
                break  # closes the connection, which cancels the request
            yield line
