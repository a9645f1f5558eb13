"""How long does choosing a token take? `python -m benchmarks.parts.sampler [--vocab N ...] [--threads N]`

Prints microseconds per sequence, the best of many calls, by chain of filters and by how the logits are
distributed: as a model's (a few likely tokens over a wide bell), flat (a narrow bell, so that a nucleus
has most of the vocabulary), all equal.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puna._native import Sampler, ThreadPool, sample_batch

OFF: dict[str, Any] = {
    "temperature": 0.8,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "seed": 1,
    "logit_bias": {},
    "num_logprobs": -1,
}
CHAINS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {},
    "top_k 40, top_p 0.9, min_p 0.05": {"top_k": 40, "top_p": 0.9, "min_p": 0.05},
    "the same, repeat_penalty 1.1": {"top_k": 40, "top_p": 0.9, "min_p": 0.05, "repeat_penalty": 1.1},
    "the same, 20 logprobs": {"top_k": 40, "top_p": 0.9, "min_p": 0.05, "num_logprobs": 20},
    "top_k 5000": {"top_k": 5000},
    "top_p 0.9": {"top_p": 0.9},
    "top_p 0.999": {"top_p": 0.999},
    "min_p 0.05": {"min_p": 0.05},
    "typical_p 0.9": {"typical_p": 0.9},
}


def distributions(vocab: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    bell = rng.standard_normal(vocab)
    model = bell * 2.5
    model[rng.integers(0, vocab, 20)] = np.linspace(18, 10, 20)
    return {
        name: row.astype(np.float32)
        for name, row in (("model", model), ("flat", bell * 0.7), ("equal", np.zeros(vocab)))
    }


def best_us(pool: ThreadPool, logits: NDArray[np.float32], samplers: list[Sampler], seconds: float) -> float:
    best, end = float("inf"), time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        sample_batch(pool, logits, samplers)
        best = min(best, time.perf_counter() - start)
    return best / len(samplers) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vocab", type=int, nargs="*", default=[49152, 262144])
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.2, help="per figure")
    arguments = parser.parse_args()
    pool = ThreadPool(arguments.threads)
    columns = [(vocab, name, row) for vocab in arguments.vocab for name, row in distributions(vocab).items()]
    print("| us per sequence | " + " | ".join(f"{vocab} {name}" for vocab, name, _ in columns) + " |")
    print("|---|" + "---|" * len(columns))
    for chain, changes in CHAINS.items():
        cells = []
        for vocab, _, row in columns:
            samplers = [Sampler(**{**OFF, **changes}) for _ in range(arguments.rows)]
            for sampler in samplers:
                sampler.accept_many(np.arange(0, vocab, vocab // 64, dtype=np.int32))
            logits = np.tile(row, (arguments.rows, 1))
            cells.append(f"{best_us(pool, logits, samplers, arguments.seconds):.0f}")
        print(f"| {chain} | " + " | ".join(cells) + " |", flush=True)
    pool.close()


if __name__ == "__main__":
    main()
