"""How fast both read and write, one after the other, several times."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx

from benchmarks.servers.peer import Peer
from benchmarks.weights.files import BenchFile
from puna.backends.base import BLOCK_TOKENS
from puna.bench.measure import PROMPT_TOKENS, Bench, Work

_ROUNDS = 2
_SECONDS = 0.25
_REQUEST_TIMEOUT_S = 60
_PREFILL, _DECODE = Work(kind="prefill", batch=1, context=0), Work(kind="decode", batch=1, context=0)
_NEW_TOKENS = 48
_WHOLE_TEXTS = ("--embeddings", "--batch-size", str(PROMPT_TOKENS), "--ubatch-size", str(PROMPT_TOKENS))
_VOCAB = 250
_SHORT_CONTEXT = 16
_CONTEXT = 1024


@dataclass(frozen=True)
class Speed:
    """Tokens per second, puna's over llama.cpp's, medians of rounds; and what contexts take here."""

    prefill: float
    decode: float | None
    """None of an encoder."""
    kv_bytes_per_token: int
    """That every further token takes."""
    fixed_bytes: int
    """Of windows when they are full, and of states."""


def measure(path: Path, title: str, peer: Peer, threads: int) -> Speed:
    """Of a file with weights of some size. Raises BenchError, ModelLoadError, httpx.HTTPError, RuntimeError
    where one of the two cannot run it.
    """
    prefill: list[float] = []
    decode: list[float] = []

    def their_prefill(http: httpx.Client) -> float:
        return _embedded(http) if ours.info.is_encoder else _completed(http, PROMPT_TOKENS, 1)

    file = BenchFile(title, path.parent, title, path)
    with Bench(path, num_threads=threads, kv_limit_bytes=None, seconds=_SECONDS) as ours:
        options = _WHOLE_TEXTS if ours.info.is_encoder else ()
        with _server(peer, file, threads, options) as http:
            their_prefill(http)  # brings the file into memory
            for _ in range(_ROUNDS):
                prefill.append(ours.run(_PREFILL).tokens_per_second / their_prefill(http))
                if not ours.info.is_encoder:
                    their_decode = _completed(http, _SHORT_CONTEXT, _NEW_TOKENS)
                    decode.append(ours.run(_DECODE).tokens_per_second / their_decode)
    groups = ours.info.groups
    grows = [group.block_bytes for group in groups if not group.is_state and group.window is None]
    windows = [group.block_bytes * -(-group.window // BLOCK_TOKENS) for group in groups if group.window]
    return Speed(
        prefill=median(prefill),
        decode=median(decode) if decode else None,
        kv_bytes_per_token=sum(grows) // BLOCK_TOKENS,
        fixed_bytes=sum(windows) + ours.info.state_bytes,
    )


@contextmanager
def _server(peer: Peer, file: BenchFile, threads: int, options: Sequence[str]) -> Iterator[httpx.Client]:
    """Without flash attention where it cannot start with it, as with PLM."""
    with ExitStack() as stack:

        def started(setting: str) -> httpx.Client:
            server = peer.server(file, threads, 1, setting, context_tokens=_CONTEXT, options=options)
            return stack.enter_context(server).http

        try:
            http = started("default")
        except RuntimeError:
            http = started("flash attention off")
        yield http


def _completed(http: httpx.Client, num_prompt: int, num_new: int) -> float:
    """Of the prompt if one token is asked for, else of the reply."""
    body = {
        "prompt": _tokens(num_prompt),
        "n_predict": num_new,
        "ignore_eos": True,
        "cache_prompt": False,
        "temperature": 0,
    }
    reply = http.post("/completion", json=body, timeout=_REQUEST_TIMEOUT_S).raise_for_status().json()
    return float(reply["timings"]["prompt_per_second" if num_new == 1 else "predicted_per_second"])


def _embedded(http: httpx.Client) -> float:
    body = {"content": _tokens(PROMPT_TOKENS)}
    start = time.perf_counter()
    http.post("/embedding", json=body, timeout=_REQUEST_TIMEOUT_S).raise_for_status()
    return PROMPT_TOKENS / (time.perf_counter() - start)


def _tokens(count: int) -> list[int]:
    return [random.randrange(_VOCAB) for _ in range(count)]
