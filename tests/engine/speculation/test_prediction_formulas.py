"""What prediction heads draft is what their formula says, whatever was drafted, kept and rejected before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna.backends.base import Batch, KvReservation
from puna.backends.cpu import CpuBackend
from puna.backends.cpu.backend import CpuModel
from puna.engine import SamplingParams
from puna.engine.sequences.samplers import new_sampler
from puna.kv import BLOCK_TOKENS
from tests.forward import load_file
from tests.prediction_formula import HeadFormula
from tests.tiny import TINY, write_tiny
from tests.tiny.parts import YARN

pytestmark = pytest.mark.native

MODELS = ["qwen35", "glm4moe", "deepseek2"]
LENGTH, DEPTH = 64, 3
CLEAR = 1e-3  # between the likeliest logits: closer ones may be told apart by roundings
VERIFIED = [(0, 0), (0, 1), (2, 1), (3, 0), (1, 2)]
"""Drafts of a step: how many that are right, and how many behind them that are wrong."""


class Pair:
    """Two sequences in every step, whose drafts are the test's, and of whose tokens all hidden states are
    known.
    """

    def __init__(self, model: CpuModel, prompts: list[list[int]]) -> None:
        info, size = model.info, 2 * LENGTH
        kv_bytes = 2 * (size * info.block_bytes + info.state_bytes)
        reservation = KvReservation(kv_bytes, kv_bytes, 2 * size, static_states=2)
        self._model, self._memories = model, model.reserve(reservation)
        self._tables = np.random.default_rng(0).permutation(2 * size // BLOCK_TOKENS)
        self._tables = self._tables.reshape(2, -1).astype(np.int32)
        self._heads = [model.new_head_state() for _ in prompts]
        self._samplers = [new_sampler(SamplingParams(temperature=0)) for _ in prompts]
        self.tokens = [list(prompt) for prompt in prompts]
        self.hidden: list[list[NDArray[np.float64]]] = [[], []]

    def step(self, drafts: list[list[int]]) -> None:
        """Computes what is pending, with drafts behind it."""
        new = [
            tokens[len(hidden) :] + added
            for tokens, hidden, added in zip(self.tokens, self.hidden, drafts, strict=True)
        ]
        batch = self._batch(new, drafts)
        result = self._model.step(batch, self._memories, self._samplers)
        starts = result.samples.starts
        for s, added in enumerate(drafts):
            drawn = result.samples.tokens[starts[s] : starts[s + 1]].tolist()
            begin, num_kept = batch.sequence_starts[s], len(new[s]) - len(added) + len(drawn) - 1
            self.hidden[s] += list(result.hidden[begin : begin + num_kept].astype(np.float64))
            self.tokens[s] += drawn

    def predict(self, counts: list[int]) -> list[list[int]]:
        batch = self._batch([tokens[-1:] for tokens in self.tokens], [[], []])
        return self._model.predict(batch, self._memories, counts)

    def close(self) -> None:
        for memory in self._memories:
            memory.close()

    def _batch(self, new: list[list[int]], drafts: list[list[int]]) -> Batch:
        begins = [len(hidden) for hidden in self.hidden]
        starts = np.cumsum([0, *map(len, new)])
        rows = [range(starts[s + 1] - 1 - len(drafts[s]), starts[s + 1]) for s in range(2)]
        states = np.array([[s if begins[s] else -1, s] for s in range(2)], np.int32)
        return Batch(
            tokens=np.concatenate(new).astype(np.int32),
            positions=np.concatenate(
                [np.arange(b, b + len(t)) for b, t in zip(begins, new, strict=True)]
            ).astype(np.int32),
            sequence_starts=starts.astype(np.int32),
            block_tables=tuple(
                states if group.is_state else self._tables for group in self._model.info.groups
            ),
            rows=np.concatenate(rows).astype(np.int32),
            hidden=np.arange(starts[-1], dtype=np.int32),
            drafts=np.concatenate(drafts).astype(np.int32),
            draft_starts=np.cumsum([0, *map(len, drafts)]).astype(np.int32),
            heads=self._heads,
        )


@pytest.fixture(scope="module")
def backend() -> Iterator[CpuBackend]:
    backend = CpuBackend(num_threads=2, kv_type="f32")
    yield backend
    backend.close()


def greedy(model: CpuModel, prompts: list[list[int]]) -> list[list[int]]:
    """Prompts and replies."""
    pair = Pair(model, prompts)
    while min(map(len, pair.tokens)) < LENGTH + 10:
        pair.step([[], []])
    pair.close()
    return pair.tokens


def verified(rest: list[int], num_right: int, num_wrong: int) -> list[int]:
    """Drafts. rest: of a greedy reply."""
    drafts = rest[: num_right + num_wrong]
    return [token if i < num_right else (token + 1) % 200 for i, token in enumerate(drafts)]


@pytest.mark.parametrize("name", MODELS)
def test_drafts_are_what_the_formula_says(backend: CpuBackend, name: str, tmp_path: Path):
    tiny = TINY[name]
    without_yarn = {key: value for key, value in tiny.metadata.items() if key not in YARN}
    # Of the head: what it attends to is to matter.
    heavy = [f"blk.{tiny.layers - 1}.attn_{part}.weight" for part in ("output", "q", "q_b")]
    path = write_tiny(
        tmp_path / "tiny.gguf",
        replace(tiny, metadata=without_yarn),
        change=lambda name, weight: weight * np.float32(6 if name in heavy else 1),
    )
    model = load_file(backend, path)
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, 200, size).tolist() for size in (21, 34)]
    replies = greedy(model, prompts)
    formula, without_turning = HeadFormula(path), HeadFormula(path, turns=False)
    num_clear = num_other = num_right = 0
    pair = Pair(model, prompts)
    pair.step([[], []])
    for turn in range(8):
        counts = [DEPTH, (0, 1, DEPTH)[turn % 3]]
        drafted = pair.predict(counts)
        for tokens, hidden, count, drafts in zip(pair.tokens, pair.hidden, counts, drafted, strict=True):
            assert len(drafts) == count
            if not count:
                continue
            logits = formula.logits(tokens, hidden, count)
            others = without_turning.logits(tokens, hidden, count)
            for draft, right, other in zip(drafts, logits, others, strict=True):
                second, first = np.sort(right)[-2:]
                if first - second < CLEAR:
                    break
                assert draft == right.argmax()
                num_clear += 1
                num_other += int(other.argmax() != draft)
        before = [len(tokens) for tokens in pair.tokens]
        pair.step(
            [
                verified(reply[len(tokens) :], *VERIFIED[(turn + s) % len(VERIFIED)])
                for s, (tokens, reply) in enumerate(zip(pair.tokens, replies, strict=True))
            ]
        )
        num_right += sum(len(tokens) - b - 1 for tokens, b in zip(pair.tokens, before, strict=True))
    assert pair.tokens == [reply[: len(tokens)] for tokens, reply in zip(pair.tokens, replies, strict=True)]
    assert num_clear > 25
    assert num_right > 8
    assert num_other > 9, "the test would not find a wrong rotation"
    pair.close()
    model.close()
