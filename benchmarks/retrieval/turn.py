"""One turn: embed the question, search, rerank what was found, answer, and make a title."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from puna.kv import BLOCK_TOKENS

FOUND, READ = 20, 3
ANSWER_TOKENS, TITLE_TOKENS = 48, 12
_LOT = 64

_SYSTEM = (
    """You answer questions about the company's handbook. Use only the passages that are given. If they do
not say, say that you do not know. Answer in two sentences, in plain words, without lists.
"""
    * 3
)
_WORDS = """the office opens at eight and closes when the last visitor leaves requests for holidays go to the
team by Friday travel is paid after return with receipts laptops stay locked in drawers overnight
meetings start on the hour end five minutes early new colleagues get keys badge and desk from
reception parking needs a permit which costs ten each month sick days are told before nine a
training budget lasts one year
""".split()  # noqa: SIM905


@dataclass(frozen=True)
class Endpoint:
    """A model behind OpenAI's and Jina's endpoints."""

    http: httpx.Client
    model: str
    asks_again: bool = False
    """Once, where the server closes the connection instead of answering."""

    def post(self, path: str, **body: object) -> Any:
        """The reply's JSON. Raises RuntimeError, httpx.HTTPError."""
        request = {"model": self.model, **body}
        try:
            reply = self.http.post(path, json=request)
        except httpx.RemoteProtocolError:
            if not self.asks_again:
                raise
            reply = self.http.post(path, json=request)
        if reply.is_error:
            raise RuntimeError(f"{path} of {self.model}: {reply.text[:200]}")
        return reply.json()


Stack = Mapping[str, Endpoint]
"""embed, rerank, answer and title -> the model for it."""


@dataclass
class Corpus:
    passages: Sequence[str]
    vectors: NDArray[np.float32]
    """[passages, dimension], of length 1"""

    def nearest(self, vector: NDArray[np.float32]) -> list[str]:
        return [self.passages[i] for i in np.argsort(-(self.vectors @ vector))[:FOUND]]


@dataclass
class Conversation:
    """Its turns so far, which every further one repeats."""

    messages: list[dict[str, str]] = field(default_factory=lambda: [{"role": "system", "content": _SYSTEM}])
    times_s: list[float] = field(default_factory=list)
    num_tokens: int = 0
    """That the answering model has seen of it."""
    repeated_tokens: int = 0
    """That later turns brought again."""
    recomputed_tokens: int = 0
    """Of these, those that were computed again, but for the last block of each turn."""


def embed(endpoint: Endpoint, texts: Sequence[str]) -> NDArray[np.float32]:
    """[texts, dimension]"""
    vectors: list[list[float]] = []
    for start in range(0, len(texts), _LOT):
        reply = endpoint.post("/v1/embeddings", input=list(texts[start : start + _LOT]))
        found = sorted(reply["data"], key=lambda item: item["index"])
        vectors += [item["embedding"] for item in found]
    array = np.array(vectors, dtype=np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def ask(stack: Stack, corpus: Corpus, conversation: Conversation, question: str) -> None:
    start = time.perf_counter()
    found = corpus.nearest(embed(stack["embed"], [question])[0])
    ranked = stack["rerank"].post("/v1/rerank", query=question, documents=found, top_n=READ)["results"]
    read = [found[item["index"]] for item in ranked]
    passages = "\n".join(f"Passage: {text}" for text in read)
    conversation.messages.append({"role": "user", "content": f"{passages}\nQuestion: {question}"})
    answer = _chat(stack["answer"], conversation.messages, ANSWER_TOKENS)
    conversation.messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
    wish = {"role": "user", "content": f"A title of three words for the question: {question}"}
    _chat(stack["title"], [wish], TITLE_TOKENS)
    conversation.times_s.append(time.perf_counter() - start)
    _count(conversation, answer["usage"])


def _chat(endpoint: Endpoint, messages: Sequence[Mapping[str, str]], num_tokens: int) -> Any:
    return endpoint.post("/v1/chat/completions", messages=messages, max_tokens=num_tokens, temperature=0)


def _count(conversation: Conversation, usage: Mapping[str, Any]) -> None:
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    conversation.repeated_tokens += conversation.num_tokens
    conversation.recomputed_tokens += max(0, conversation.num_tokens - BLOCK_TOKENS - cached)
    conversation.num_tokens = usage["prompt_tokens"] + usage["completion_tokens"]


def write_passages(count: int, seed: int = 3) -> list[str]:
    """Of 20 to 120 words."""
    rng = random.Random(seed)
    return [
        " ".join(rng.choice(_WORDS) for _ in range(rng.randint(20, 120))).capitalize() + "."
        for _ in range(count)
    ]
