"""How fast is puna beside llama.cpp on the same file and machine? Prints a Markdown table of ratios.

Both servers run at once and are asked in turn, for several rounds; figures are medians over the rounds.
An idle server sleeps, so it does not disturb the other. Prompts differ in every round, so that nothing
is served from a cache.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.model import default_model
from benchmarks.servers import LlamaCpp, Server, llamacpp_server, puna_server

SENTENCE = "the herd walks over the high plateau while small clouds pass and a cold wind moves the grass"
WORDS = SENTENCE.split()
STREAMS = 16


def text(seed: int, num_words: int) -> str:
    """Distinct for every seed, from the first word on."""
    return f"{seed} " + " ".join(WORDS[(i * (seed % 7 + 3) + i // 5) % len(WORDS)] for i in range(num_words))


def prefill(server: Server, prompts: list[str]) -> float:
    """Prompt tokens per second, one request."""
    c = server.complete(prompts[0], 1)
    return c.prompt_tokens / c.prompt_s


def decode(server: Server, prompts: list[str]) -> float:
    """Generated tokens per second, one stream."""
    c = server.complete(prompts[0], 128)
    return c.generated_tokens / c.generation_s


def concurrent(server: Server, prompts: list[str]) -> float:
    """Generated tokens per second of all streams together, prompts included in the time."""
    start = time.perf_counter()
    with ThreadPoolExecutor(len(prompts)) as pool:
        done = list(pool.map(lambda prompt: server.complete(prompt, 64), prompts))
    return sum(c.generated_tokens for c in done) / (time.perf_counter() - start)


WORKLOADS: dict[str, tuple[Callable[[Server, list[str]], float], int, int]] = {
    "prefill, 512 tokens": (prefill, 1, 512),
    "decode, 128 tokens": (decode, 1, 16),
    f"{STREAMS} streams, 128 + 64 tokens": (concurrent, STREAMS, 128),
}


def measure(servers: list[Server], oracle: LlamaCpp, rounds: int) -> dict[str, dict[str, list[float]]]:
    """workload -> server -> tokens per second of each round."""
    results: dict[str, dict[str, list[float]]] = {}
    seed = 1000
    for workload, (run, num_prompts, prompt_tokens) in WORKLOADS.items():
        rates: dict[str, list[float]] = {server.name: [] for server in servers}
        for round_number in range(rounds + 1):
            prompts = [
                oracle.exact_prompt(text(seed + i, prompt_tokens), prompt_tokens) for i in range(num_prompts)
            ]
            seed += num_prompts
            for server in servers:
                rate = run(server, prompts)
                if round_number > 0:  # the first round warms both up
                    rates[server.name].append(rate)
        results[workload] = rates
    return results


def print_table(results: dict[str, dict[str, list[float]]]) -> None:
    print("| tokens/s (median) | puna | llama.cpp | ratio | range of ratios |")
    print("|---|---|---|---|---|")
    for workload, rates in results.items():
        ours, theirs = rates["puna"], rates["llama.cpp"]
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        a, b = statistics.median(ours), statistics.median(theirs)
        print(
            f"| {workload} | {a:.0f} | {b:.0f} | **{a / b:.2f}** | {min(ratios):.2f} to {max(ratios):.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", nargs="?", type=Path, help="default: SmolLM2-135M-Instruct Q4_1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    gguf = args.gguf or default_model()
    with llamacpp_server(gguf, args.threads, STREAMS) as peer, puna_server(gguf, args.threads) as puna:
        results = measure([puna, peer], peer, args.rounds)
    print(f"\n{gguf.name}, {args.threads} threads, {args.rounds} rounds\n")
    print_table(results)


if __name__ == "__main__":
    main()
