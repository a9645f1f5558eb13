"""What do LoRA adapters cost? `python -m benchmarks.adapters`

Steps of a model of the shape of Qwen3-4B, without adapters and with them in turn, so that both meet the same
machine; a ratio is the median over neighbouring steps. With --peer llama.cpp's server in the same way, by
whole requests, which switch its adapter on and off.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.machine import machine_today
from benchmarks.servers.peer import Peer
from benchmarks.servers.servers import LlamaCpp
from benchmarks.synthetic.adapter import write_adapter
from benchmarks.synthetic.qwen3 import QWEN3_4B
from benchmarks.weights.files import BenchFile, synthetic_file
from puna.backends.base import BLOCK_TOKENS, Batch, BlockMemory, DeviceAdapter, KvReservation, ModelSource
from puna.backends.cpu import CpuBackend
from puna.backends.cpu.backend import CpuModel
from puna.backends.cpu.cores import usable_cores

CONTEXT = 64
"""Tokens that are there before a step."""
TYPES = {"F16": np.float16, "F32": np.float32}


class Pair(NamedTuple):
    """Seconds without adapters and with them, and the median of the ratios."""

    plain_s: float
    adapted_s: float
    ratio: float


def in_turn(plain: Callable[[], float], adapted: Callable[[], float], rounds: int) -> Pair:
    """Both give seconds; a first one of each is not counted."""
    pairs = [(plain(), adapted()) for _ in range(rounds + 1)][1:]
    ratios = [with_it / without for without, with_it in pairs]
    return Pair(
        statistics.median(without for without, _ in pairs),
        statistics.median(with_it for _, with_it in pairs),
        statistics.median(ratios),
    )


class Stepper:
    """Steps of a model with room for some sequences; what they say does not matter."""

    def __init__(self, model: CpuModel, most_sequences: int, most_tokens: int) -> None:
        self._model = model
        self._width = -(-(CONTEXT + most_tokens) // BLOCK_TOKENS)
        num_tokens = most_sequences * self._width * BLOCK_TOKENS
        room = num_tokens // BLOCK_TOKENS * model.info.block_bytes
        self._memory: tuple[BlockMemory, ...] = model.reserve(KvReservation(room, room, num_tokens))

    def seconds(
        self, num_sequences: int, num_tokens: int, adapters: tuple[DeviceAdapter | None, ...]
    ) -> float:
        """Of a step with so many new tokens of each sequence."""
        starts = np.arange(num_sequences + 1, dtype=np.int32) * num_tokens
        positions = CONTEXT + np.arange(num_tokens, dtype=np.int32)
        table = np.arange(num_sequences * self._width, dtype=np.int32).reshape(num_sequences, -1)
        batch = Batch(
            tokens=np.arange(num_sequences * num_tokens, dtype=np.int32) + 100,
            positions=np.tile(positions, num_sequences),
            sequence_starts=starts,
            block_tables=(table,) * len(self._model.info.groups),
            rows=starts[1:] - 1,
            adapters=adapters,
        )
        start_s = time.perf_counter()
        self._model.logits(batch, self._memory)
        return time.perf_counter() - start_s

    def compare(self, num_tokens: int, adapters: list[DeviceAdapter | None], rounds: int) -> Pair:
        """adapters: one for each sequence."""
        count = len(adapters)
        return in_turn(
            lambda: self.seconds(count, num_tokens, ()),
            lambda: self.seconds(count, num_tokens, tuple(adapters)),
            rounds,
        )


def measure_puna(file: BenchFile, adapters: list[Path], threads: int, rounds: int) -> dict[str, Pair]:
    backend = CpuBackend(num_threads=threads)
    with ModelSource.open(file.path) as source:
        model = backend.load(source)
    loaded: list[DeviceAdapter | None] = []
    for path in adapters:
        with ModelSource.open(path) as source:
            loaded.append(model.load_adapter(source))
    steps = Stepper(model, 16, 256)
    found = {
        "decode, 1 stream": steps.compare(1, loaded[:1], 3 * rounds),
        "decode, 16 streams, one adapter": steps.compare(1, loaded[:1] * 16, rounds),
        "decode, 16 streams, 4 adapters": steps.compare(1, loaded * 4, rounds),
        "decode, 16 streams, 4 adapters and none": steps.compare(1, [*loaded * 3, *[None] * 4], rounds),
        "prefill, 256 tokens": steps.compare(256, loaded[:1], max(rounds // 3, 2)),
    }
    model.close()
    backend.close()
    return found


def measure_peer(server: LlamaCpp, rounds: int) -> Pair:
    """Of a token of one stream."""

    def seconds(scale: float) -> float:
        body = {"prompt": [100] * CONTEXT, "n_predict": 16, "temperature": 0.0, "ignore_eos": True}
        lora = [{"id": 0, "scale": scale}]
        reply = server.http.post("/completion", json={**body, "cache_prompt": False, "lora": lora})
        timings = reply.raise_for_status().json()["timings"]
        return float(timings["predicted_ms"] / timings["predicted_n"] / 1e3)

    return in_turn(lambda: seconds(0.0), lambda: seconds(1.0), rounds)


def print_row(work: str, pair: Pair) -> None:
    print(
        f"| {work} | {pair.plain_s * 1e3:.1f} | {pair.adapted_s * 1e3:.1f} | {pair.ratio:.3f} |", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--type", choices=TYPES, default="F16", help="of the adapters")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--peer", type=Path, help="a llama-server to compare with")
    arguments = parser.parse_args()
    model = QWEN3_4B.model()
    file = synthetic_file("qwen3-4b:synthetic", model)
    print(machine_today(arguments.threads))
    print(f"\n| {arguments.type}, rank {arguments.rank} | ms without | ms with | ratio |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="puna-bench-") as directory:
        adapters = [Path(directory) / f"{i}.gguf" for i in range(4)]
        for i, path in enumerate(adapters):
            write_adapter(model, arguments.rank, TYPES[arguments.type], i, path)
        for work, pair in measure_puna(file, adapters, arguments.threads, arguments.rounds).items():
            print_row(work, pair)
        if arguments.peer is None:
            return
        lora = ["--lora", str(adapters[0])]
        with Peer.find(arguments.peer).server(file, arguments.threads, 1, "default", options=lora) as server:
            print_row("llama.cpp: decode, 1 stream", measure_peer(server, arguments.rounds))


if __name__ == "__main__":
    main()
