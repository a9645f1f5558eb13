"""Does a prediction head (MTP) pay? `python -m benchmarks.prediction`

A model of the shape of Qwen3.5-0.8B whose layers add nothing, so that it goes on with the token whose number
is the next one: nothing repeats, and nothing but the head can draft. Its head either says the same, or
something at random. Replies with drafts and without (`num_draft=0`), in turn, for some seconds; a ratio is
the median over neighbouring ones.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import gguf
import numpy as np

from benchmarks.machine import machine_today
from benchmarks.synthetic.qwen35 import Qwen35
from benchmarks.synthetic.writing import write_model
from benchmarks.weights.files import STORE
from puna.backends.base import ModelSource
from puna.backends.cpu import CpuBackend
from puna.backends.cpu.cores import usable_cores
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams

SHAPE = Qwen35(
    "Qwen3.5-0.8B with a prediction head",
    layers=24,
    width=1024,
    ffn=3584,
    heads=8,
    kv_heads=2,
    head_dim=256,
    delta_key_heads=16,
    delta_value_heads=16,
    delta_dim=128,
    vocabulary=248320,
    mixture="Q8_0",
    is_tied=False,
    predicts=True,
)
PROMPT_TOKENS = 512  # of all streams
NUM_TOKENS = {1: 96, 4: 64, 16: 32}
"""Of each reply, by how many there are at once."""
_ADDING = ("attn_output.weight", "ssm_out.weight", "ffn_down.weight")


def head_file(*, is_right: bool) -> Path:
    """Made first if it is not there."""
    path = STORE / f"prediction-{'right' if is_right else 'random'}.gguf"
    if not path.exists():
        STORE.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        write_model(SHAPE.model(), temporary)
        _rewrite(temporary, is_right=is_right)
        temporary.rename(path)
    return path


def _rewrite(path: Path, *, is_right: bool) -> None:
    """Has the layers add nothing, and each token's row of the output be the embedding of the token before."""
    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path, "r+").tensors}
    head = f"blk.{SHAPE.layers}."
    for name, data in tensors.items():
        if name.endswith(_ADDING) and (is_right or not name.startswith(head)):
            data[:] = 0
    tensors["output.weight"][:] = np.roll(tensors["token_embd.weight"], 1, axis=0)
    if is_right:
        weight = np.eye(SHAPE.width, 2 * SHAPE.width, dtype=np.float32)
        projection = gguf.quants.quantize(weight, gguf.GGMLQuantizationType.Q8_0)
        tensors[f"{head}nextn.eh_proj.weight"][:] = projection
    for data in tensors.values():
        if isinstance(data, np.memmap):
            data.flush()


class Replies:
    """An engine, and how fast it answers."""

    def __init__(self, path: Path, threads: int) -> None:
        self._backend = CpuBackend(num_threads=threads)
        self._core = EngineCore(self._backend, EngineSettings(kv_limit_bytes=4 << 30))
        with ModelSource.open(path) as source:
            self._core.attach_model("m", self._backend.load(source))
        self._num_asked = 0
        self.num_drafted = self.num_right = 0

    def seconds(self, num_streams: int, num_draft: int | None) -> tuple[float, float]:
        """Of the prompts, and of the replies behind them."""
        rng = np.random.default_rng(self._num_asked)
        for begin in rng.integers(0, 60000, num_streams).tolist():
            self._num_asked += 1
            self._core.submit(
                Request(
                    id=str(self._num_asked),
                    model_id="m",
                    prompt=list(range(begin, begin + PROMPT_TOKENS // num_streams)),
                    max_tokens=NUM_TOKENS[num_streams],
                    sampling=SamplingParams(temperature=0),
                    num_draft=num_draft,
                    cache_prompt=False,
                )
            )
        start_s, answered, answered_s = time.perf_counter(), set[str](), 0.0
        while self._core.has_work:
            for output in self._core.step():
                if output.tokens:
                    answered.add(output.request_id)
                if output.stats is not None:
                    self.num_drafted += output.stats.drafted_tokens
                    self.num_right += output.stats.accepted_tokens
            if len(answered) == num_streams and not answered_s:
                answered_s = time.perf_counter()
        return answered_s - start_s, time.perf_counter() - answered_s

    def close(self) -> None:
        self._core.close()
        self._backend.close()


def compare(replies: Replies, num_streams: int, seconds: float) -> str:
    """A row of the table, in about as many seconds, but of one pair at least."""
    pairs: list[tuple[tuple[float, float], tuple[float, float]]] = []
    end_s = time.perf_counter() + seconds
    replies.seconds(num_streams, None)  # what drafts cost and bring is learned
    replies.num_drafted = replies.num_right = 0
    while not pairs or time.perf_counter() < end_s:
        pairs.append((replies.seconds(num_streams, 0), replies.seconds(num_streams, None)))
    ratios = [statistics.median(plain[part] / drafted[part] for plain, drafted in pairs) for part in (0, 1)]
    plain_s = statistics.median(plain[1] for plain, _ in pairs)
    speed = num_streams * NUM_TOKENS[num_streams] / plain_s
    drafts = f"{replies.num_right} of {replies.num_drafted}"
    return f"{speed:.1f} | {ratios[1]:.2f} | {ratios[0]:.2f} | {drafts} | {len(pairs)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--seconds", type=float, default=25, help="for each row of the table")
    parser.add_argument("--streams", type=int, nargs="+", choices=NUM_TOKENS, default=list(NUM_TOKENS))
    arguments = parser.parse_args()
    print(machine_today(arguments.threads))
    print("\n| head, streams | tokens/s without | with it | prompts with it | drafts right | pairs |")
    print("|---|---|---|---|---|---|")
    for is_right in (True, False):
        replies = Replies(head_file(is_right=is_right), arguments.threads)
        for num_streams in arguments.streams:
            row = compare(replies, num_streams, arguments.seconds)
            print(f"| {'right' if is_right else 'random'}, {num_streams} | {row} |", flush=True)
        replies.close()


if __name__ == "__main__":
    main()
