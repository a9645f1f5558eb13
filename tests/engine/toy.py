"""A device, and a model on it, written against puna/backends/base.py alone.

The model is one whose next token depends on its whole context, read back through the block table.

Lost, overwritten or misplaced KV therefore changes the output, and what it should be is known without it. As
in a real model, what is kept of a token depends on all that was before it when it was computed, and on its
position: KV that was shifted is not what a fresh computation would give, and is moved with its positions.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puna._native import NativeError, PoolActivity, Sampler, SampleResult, ThreadPool, sample_batch
from puna.backends.base import (
    BLOCK_TOKENS,
    Batch,
    BlockMemory,
    KvGroup,
    KvReservation,
    ModelInfo,
    ModelLoadError,
    ModelSource,
)
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams, StepOutput
from tests.engine.toy_memory import ToyDeviceMemory, ToyMemory

VOCABULARY = 97
POISON = VOCABULARY - 1  # a prompt with this token makes the step fail
BLOCK_BYTES = 4 * BLOCK_TOKENS  # a token's value and position, 16 bits each
COARSE = 64  # blocks of a large extent
GREEDY = SamplingParams(temperature=0)
_CYCLE = 6
_MOST_BLOCKS = 2**31 - 1
_THREAD = ThreadPool(1)  # the caller's
_NOTHING = np.empty(0, np.uint16)


def toy_values(before: NDArray[np.uint16], tokens: Iterable[int]) -> NDArray[np.uint16]:
    """What is kept of `tokens` behind the values `before`."""
    values, seen = [], zlib.crc32(before.tobytes())
    for token in tokens:
        values.append(zlib.crc32(bytes([token]), seen) & 0xFF80 | int(token))
        seen = zlib.crc32(values[-1].to_bytes(2, "little"), seen)
    return np.array(values, dtype=np.uint16)


def toy_logits(tokens: NDArray[np.int32], salt: int = 0) -> NDArray[np.float32]:
    """[VOCABULARY]; POISON is never likely."""
    return _logits_behind(toy_values(_NOTHING, tokens), salt)


def _logits_behind(values: NDArray[np.uint16], salt: int, is_habitual: bool = False) -> NDArray[np.float32]:
    random = np.random.default_rng([salt, zlib.crc32(values.tobytes())])
    logits = random.standard_normal(VOCABULARY).astype(np.float32)
    if is_habitual and random.random() < 0.75:
        logits[(int(values[-1] & 0x7F) + 1) % _CYCLE] = 100
    logits[POISON] = -100
    return logits


def expected_tokens(
    prompt: list[int],
    count: int,
    salt: int = 0,
    *,
    is_habitual: bool = False,
    context_length: int | None = None,
    num_keep: int = 0,
) -> list[int]:
    """What greedy sampling must give, with context shift where a context length is given."""
    values, pending, tokens = _NOTHING, prompt, []
    for _ in range(count):
        if context_length is not None and len(values) + len(pending) > context_length:
            num_discard = max((len(values) - num_keep) // 2, 1)
            values = np.concatenate([values[:num_keep], values[num_keep + num_discard :]])
        values = np.concatenate([values, toy_values(values, pending)])
        pending = [int(_logits_behind(values, salt, is_habitual).argmax())]
        tokens += pending
    return tokens


class ToyClock:
    """Seconds, when told so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class ToyModel:
    """Checks every batch as the real executor does.

    is_habitual: the next token is mostly one that often followed the last, so that guesses may be right.
    clock: goes on by `step_s` for each step and by a millisecond for each token.
    steps: the number of tokens of each sequence, per run; threads: what each run was limited to.
    extent_blocks: what extents have where there is room for several; None: COARSE where there is room for
        many, elsewhere 1. device_memory: shared with other models, if given.
    """

    def __init__(
        self,
        salt: int = 0,
        context_length: int = 1000,
        block_bytes: int = BLOCK_BYTES,
        *,
        is_habitual: bool = False,
        can_shift: bool = True,
        weight_bytes: int = 0,
        clock: ToyClock | None = None,
        step_s: float = 0.0,
        extent_blocks: int | None = None,
        device_memory: ToyDeviceMemory | None = None,
    ) -> None:
        self.info = ModelInfo(
            architecture="toy",
            vocab_size=VOCABULARY,
            context_length=context_length,
            num_layers=1,
            groups=(KvGroup(num_layers=1, block_bytes=block_bytes),),
            kv_type="f16",
            weight_bytes=weight_bytes,
            can_shift=can_shift,
        )
        self.clock = clock or ToyClock()
        self.step_s = step_s
        self.salt = salt
        self.is_habitual = is_habitual
        self.extent_blocks = extent_blocks
        self.device_memory = device_memory or ToyDeviceMemory()
        self.steps: list[list[int]] = []
        self.threads: list[int | None] = []
        self.is_asleep = False
        self.closed = False

    def reserve(self, reservation: KvReservation) -> tuple[ToyMemory, ...]:
        assert not self.closed
        (group,) = self.info.groups
        extent_blocks, fewest = (self.extent_blocks, 8) if self.extent_blocks else (COARSE, 64)
        if reservation.room_bytes < fewest * extent_blocks * group.block_bytes:
            extent_blocks = 1
        num_blocks = _MOST_BLOCKS
        if reservation.static_tokens is not None:
            num_blocks = -(-reservation.static_tokens // BLOCK_TOKENS)
        return (
            ToyMemory(
                num_blocks,
                group.block_bytes,
                extent_blocks,
                self.device_memory,
                can_shift=self.info.can_shift,
            ),
        )

    def step(self, batch: Batch, kv: Sequence[BlockMemory], samplers: Sequence[Sampler]) -> SampleResult:
        logits = self.logits(batch, kv)
        return sample_batch(_THREAD, logits, samplers, batch.drafts, batch.draft_starts)

    def logits(self, batch: Batch, kv: Sequence[BlockMemory]) -> NDArray[np.float32]:
        """[R, VOCABULARY]"""
        assert not self.closed
        self.is_asleep = False
        self._check(batch)
        if POISON in batch.tokens:
            raise NativeError("poisoned")
        self.steps.append(np.diff(batch.sequence_starts).tolist())
        self.threads.append(batch.num_threads)
        self.clock.now_s += self.step_s + 0.001 * len(batch.tokens)
        (memory,), (tables,) = kv, batch.block_tables
        assert isinstance(memory, ToyMemory)
        starts = batch.sequence_starts
        for table, start, end in zip(tables, starts, starts[1:], strict=False):
            first = batch.positions[start]
            before = memory.values(table, first)
            memory.store(table, first, toy_values(before, batch.tokens[start:end]))
        rows = np.searchsorted(starts, batch.rows, side="right") - 1
        logits = np.empty((len(rows), VOCABULARY), np.float32)
        for out, sequence, row in zip(logits, rows, batch.rows, strict=True):
            values = memory.values(tables[sequence], batch.positions[row] + 1)
            out[:] = _logits_behind(values, self.salt, self.is_habitual)
        return logits

    def sleep(self) -> None:
        assert not self.closed
        self.is_asleep = True

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    def _check(self, batch: Batch) -> None:
        (tables,) = batch.block_tables
        arrays = (batch.tokens, batch.positions, batch.sequence_starts, tables, batch.rows)
        assert all(array.dtype == np.int32 and array.flags.c_contiguous for array in arrays)
        assert len(batch.tokens) == len(batch.positions) == batch.sequence_starts[-1] > 0
        assert len(batch.sequence_starts) == len(tables) + 1
        assert (np.diff(batch.sequence_starts) > 0).all()
        written, others = [], []
        for start, end, table in zip(batch.sequence_starts, batch.sequence_starts[1:], tables, strict=False):
            positions = batch.positions[start:end]
            assert (np.diff(positions) == 1).all()
            first, last = positions[[0, -1]] // BLOCK_TOKENS
            written += table[first : last + 1].tolist()
            others += table[:first].tolist()
        assert len(set(written)) == len(written), "two sequences write to one block"
        assert set(written).isdisjoint(others), "one sequence writes what another reads"


class ToyBackend:
    """`load` takes a source named after the salt, whose file it never reads; see toy_source()."""

    def load(self, source: ModelSource) -> ToyModel:
        name = Path(source.name).name
        if not name.isdigit():
            raise ModelLoadError(f"{name}: not a toy")
        return ToyModel(int(name))

    def activity(self) -> PoolActivity:
        return _THREAD.activity()

    def close(self) -> None:
        pass


def toy_source(name: str) -> ModelSource:
    """A name that is no number cannot be loaded."""
    return ModelSource(name, ())


def toy_engine(model: ToyModel | None = None, *, num_blocks: int = 1000, **settings: object) -> EngineCore:
    """An engine with one model, "toy", memory for `num_blocks` of its blocks, and the model's clock."""
    values = {"kv_limit_bytes": num_blocks * BLOCK_BYTES, "state_key": bytes(32), **settings}
    model = model or ToyModel()
    engine = EngineCore(ToyBackend(), EngineSettings(**values), model.clock)
    engine.attach_model("toy", model)
    return engine


def toy_request(request_id: str, prompt: list[int], max_tokens: int | None = 10, **fields: object) -> Request:
    values = {"model_id": "toy", "sampling": GREEDY, **fields}
    return Request(id=request_id, prompt=prompt, max_tokens=max_tokens, **values)


class Results:
    """Collects outputs by request."""

    def __init__(self) -> None:
        self.tokens: dict[str, list[int]] = {}
        self.last: dict[str, StepOutput] = {}

    def add(self, outputs: list[StepOutput]) -> None:
        for output in outputs:
            assert output.request_id not in self.last, "an output after the last"
            self.tokens.setdefault(output.request_id, []).extend(output.tokens)
            if output.finish_reason:
                self.last[output.request_id] = output


def run_all(engine: EngineCore, results: Results | None = None, max_steps: int = 10_000) -> Results:
    """Steps until nothing is left to do, checking the engine's books after each step."""
    results = results or Results()
    for _ in range(max_steps):
        if not engine.has_work:
            return results
        results.add(engine.step())
        engine.check()
    raise AssertionError(f"still at work after {max_steps} steps")
