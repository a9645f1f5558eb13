"""How fast both read and write, one after the other, several times."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx

from benchmarks.files import BenchFile
from benchmarks.peer import Peer
from puna.backends.base import BLOCK_TOKENS
from puna.bench.measure import PROMPT_TOKENS, Bench, Work

_ROUNDS = 2
_SECONDS = 0.3
_PREFILL, _DECODE = Work(kind="prefill", batch=1, context=0), Work(kind="decode", batch=1, context=0)
_NEW_TOKENS = 48
_VOCAB = 250


@dataclass(frozen=True)
class Speed:
    """Tokens per second, puna's over llama.cpp's, medians of rounds; and what contexts take here."""

    prefill: float
    decode: float
    kv_bytes_per_token: int
    """That every further token takes."""
    fixed_bytes: int
    """Of windows when they are full, and of states."""


def measure(path: Path, title: str, peer: Peer, threads: int) -> Speed:
    """Of a file with weights of some size. Raises BenchError, ModelLoadError, httpx.HTTPError, RuntimeError
    where one of the two cannot run it.
    """
    prefill, decode = [], []
    file = BenchFile(title, path.parent, title, path)
    with (
        Bench(path, num_threads=threads, kv_limit_bytes=None, seconds=_SECONDS) as ours,
        peer.server(file, threads, 1, "default") as theirs,
    ):
        for _ in range(_ROUNDS):
            prefill.append(ours.run(_PREFILL).tokens_per_second / _theirs(theirs.http, PROMPT_TOKENS, 1))
            decode.append(ours.run(_DECODE).tokens_per_second / _theirs(theirs.http, 16, _NEW_TOKENS))
        groups = ours.info.groups
    grows = [group.block_bytes for group in groups if not group.is_state and group.window is None]
    windows = [group.block_bytes * -(-group.window // BLOCK_TOKENS) for group in groups if group.window]
    return Speed(
        prefill=median(prefill),
        decode=median(decode),
        kv_bytes_per_token=sum(grows) // BLOCK_TOKENS,
        fixed_bytes=sum(windows) + ours.info.state_bytes,
    )


def _theirs(http: httpx.Client, num_prompt: int, num_new: int) -> float:
    """Of the prompt if one token is asked for, else of the reply."""
    prompt = [random.randrange(_VOCAB) for _ in range(num_prompt)]
    body = {
        "prompt": prompt,
        "n_predict": num_new,
        "ignore_eos": True,
        "cache_prompt": False,
        "temperature": 0,
    }
    reply = http.post("/completion", json=body, timeout=120).raise_for_status().json()
    return float(reply["timings"]["prompt_per_second" if num_new == 1 else "predicted_per_second"])
