"""A device, and a model on it, written against puna/backends/base.py alone.

The model is one whose next token depends on its whole context, read back through the block table.

Lost, overwritten or misplaced KV therefore changes the output, and what it should be is known without it. As
in a real model, what is kept of a token depends on all that was before it when it was computed, and on its
position: KV that was shifted is not what a fresh computation would give, and is moved with its positions.
Its recurrent layers keep a hash of all tokens before, and how many these are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
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
    StepResult,
)
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams, StepOutput
from tests.engine.toy_memory import ToyDeviceMemory, ToyMemory

VOCABULARY = 97
POISON = VOCABULARY - 1  # a prompt with this token makes the step fail
HIDDEN_SIZE = 8
BLOCK_BYTES = 4 * BLOCK_TOKENS  # a token's value and position, 16 bits each
STATE_BYTES = 16 * BLOCK_BYTES
COARSE = 64  # blocks of a large extent
GREEDY = SamplingParams(temperature=0)
_CYCLE = 6
_MOST_BLOCKS = 2**31 - 1
_THREAD = ThreadPool(1)  # the caller's
_NOTHING = np.empty(0, np.uint16)
Windows = tuple[int | None, ...]


Values = NDArray[np.uint16]


def toy_values(before: Values, tokens: Iterable[int], window: int | None = None) -> Values:
    """What is kept of `tokens` behind the values `before`, of which those within the window matter."""
    kept, length = bytearray(before.tobytes()), len(before)
    seen = zlib.crc32(kept)
    for position, token in enumerate(tokens, length):
        if window is not None:
            seen = zlib.crc32(kept[2 * _begin(position, window) :])
        kept += (zlib.crc32(bytes([token]), seen) & 0xFF80 | int(token)).to_bytes(2, "little")
        seen = zlib.crc32(kept[-2:], seen)
    return np.frombuffer(bytes(kept), np.uint16)[length:]


def toy_logits(tokens: NDArray[np.int32], salt: int = 0) -> NDArray[np.float32]:
    """[VOCABULARY]; POISON is never likely."""
    return _logits_behind([toy_values(_NOTHING, tokens)], salt)


def toy_state(tokens: Iterable[int], before: int = 1) -> int:
    """What recurrent layers keep of `tokens` behind a state."""
    return zlib.crc32(bytes(tokens), before)


def _state_values(state: int, last: int) -> Values:
    """As those of a token that the next one sees."""
    return np.array([state & 0xFFFF, state >> 16, last], np.uint16)


def _begin(position: int, window: int | None) -> int:
    """The first position that a token sees."""
    return 0 if window is None else max(position - window + 1, 0)


def _logits_behind(groups: list[Values], salt: int, is_habitual: bool = False) -> NDArray[np.float32]:
    """groups: what the last token sees, itself included, in each group."""
    seen = 0
    for values in groups:
        seen = zlib.crc32(values.tobytes(), seen)
    random = np.random.default_rng([salt, seen])
    logits = random.standard_normal(VOCABULARY).astype(np.float32)
    if is_habitual and random.random() < 0.75:
        logits[(int(groups[0][-1] & 0x7F) + 1) % _CYCLE] = 100
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
    windows: Windows = (None,),
    has_state: bool = False,
) -> list[int]:
    """What greedy sampling must give, with context shift where a context length is given."""
    groups, pending, tokens = [_NOTHING for _ in windows], prompt, []
    length, state = 0, toy_state(())
    for _ in range(count):
        if context_length is not None and length + len(pending) > context_length:
            end = num_keep + max((length - num_keep) // 2, 1)
            groups = [np.concatenate([values[:num_keep], values[end:]]) for values in groups]
            length -= end - num_keep
        groups = [
            np.concatenate([values, toy_values(values, pending, window)])
            for values, window in zip(groups, windows, strict=True)
        ]
        length, state = length + len(pending), toy_state(pending, state)
        seen = [values[_begin(length - 1, window) :] for values, window in zip(groups, windows, strict=True)]
        if has_state:
            seen.append(_state_values(state, pending[-1]))
        pending = [int(_logits_behind(seen, salt, is_habitual).argmax())]
        tokens += pending
    return tokens


def toy_tokens_within(info: ModelInfo, num_bytes: int, num_windows: int | None = 1) -> int:
    """How long a sequence can be in so much memory. num_windows: see toy_bytes_for()."""
    lengths = range(0, info.context_length + BLOCK_TOKENS, BLOCK_TOKENS)
    return max(n for n in lengths if toy_bytes_for(info, n, num_windows) <= num_bytes)


def toy_bytes_for(info: ModelInfo, num_tokens: int, num_windows: int | None = 1) -> int:
    """What a sequence needs at most, with one state. num_windows: of how many tokens' windows it has all
    blocks; None: of all tokens'.
    """
    num_blocks = -(-num_tokens // BLOCK_TOKENS)
    total = 0
    for group in info.groups:
        most = 1 if group.is_state else num_blocks
        if group.window is not None and num_windows is not None:
            # At worst, a window begins with the last token of a block.
            most = num_windows * (1 + -(-(group.window - 1) // BLOCK_TOKENS)) + num_windows - 1
        total += group.block_bytes * min(most, num_blocks)
    return total


def toy_num_windows(request: Request, info: ModelInfo, context_length: int) -> int | None:
    """Of how many tokens' windows a request may need all blocks at once; None: of all tokens'."""
    last = None if request.max_tokens is None else len(request.prompt) + request.max_tokens
    if not (request.shift and info.can_shift) or (last is not None and last <= context_length):
        return 1
    num_keep = min(request.num_keep, context_length - 1)
    num_moved = context_length - num_keep - max((context_length - num_keep) // 2, 1)
    widest = max((group.window for group in info.groups if group.window is not None), default=0)
    return None if widest - 1 > num_moved else 2


def toy_context(request: Request, info: ModelInfo, num_bytes: int) -> int:
    """How long a request's sequence can get in so much memory."""
    wanted = info.context_length if request.context_length is None else request.context_length
    context = min(wanted, info.context_length, toy_tokens_within(info, num_bytes))
    while context:
        num_windows = toy_num_windows(request, info, context)
        shorter = min(context, toy_tokens_within(info, num_bytes, num_windows))
        if shorter == context:
            break
        context = shorter
    return context


class ToyClock:
    """Seconds, when told so."""

    def __init__(self) -> None:
        self.now_s = 1.0

    def __call__(self) -> float:
        return self.now_s


class ToyModel:
    """Checks every batch as the real executor does.

    windows: of each group of layers, in the order of ModelInfo.groups; block_bytes: of each.
    state_bytes: of the recurrent layers; 0: there are none. Then tokens cannot move.
    is_habitual: the next token is mostly one that often followed the last, so that drafts may be right.
    predicts: it has a head that drafts such tokens.
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
        windows: Windows = (None,),
        state_bytes: int = 0,
        is_habitual: bool = False,
        predicts: bool = False,
        can_shift: bool = True,
        weight_bytes: int = 0,
        idle_weight_bytes: int = 0,
        clock: ToyClock | None = None,
        step_s: float = 0.0,
        extent_blocks: int | None = None,
        device_memory: ToyDeviceMemory | None = None,
    ) -> None:
        groups = [KvGroup(num_layers=1, block_bytes=block_bytes, window=window) for window in windows]
        if state_bytes:
            groups.append(KvGroup(num_layers=1, block_bytes=state_bytes, is_state=True))
        self.info = ModelInfo(
            architecture="toy",
            vocab_size=VOCABULARY,
            context_length=context_length,
            num_layers=len(groups),
            groups=tuple(groups),
            kv_type="f16",
            weight_bytes=weight_bytes,
            idle_weight_bytes=idle_weight_bytes,
            can_shift=can_shift and not state_bytes,
            hidden_size=HIDDEN_SIZE,
            pooling="last",
            predicts=predicts,
        )
        self.windows = windows
        self.clock = clock or ToyClock()
        self.step_s = step_s
        self.salt = salt
        self.is_habitual = is_habitual
        self.extent_blocks = extent_blocks
        self.device_memory = device_memory or ToyDeviceMemory()
        self.steps: list[list[int]] = []
        self.threads: list[int | None] = []
        self.num_predicted = 0
        self.is_asleep = False
        self.closed = False
        self._states: list[int] = []  # behind each token of the step
        self._hidden = np.empty((0, HIDDEN_SIZE), np.float32)

    def reserve(self, reservation: KvReservation) -> tuple[ToyMemory, ...]:
        assert not self.closed
        return tuple(self._memory(group, reservation) for group in self.info.groups)

    def _memory(self, group: KvGroup, reservation: KvReservation) -> ToyMemory:
        extent_blocks, fewest = (self.extent_blocks, 8) if self.extent_blocks else (COARSE, 64)
        if reservation.room_bytes < fewest * extent_blocks * group.block_bytes:
            extent_blocks = 1
        num_blocks = _MOST_BLOCKS
        if group.is_state:
            extent_blocks = 1
        if reservation.static_tokens is not None:
            num_blocks = -(-reservation.static_tokens // BLOCK_TOKENS)
            num_blocks = reservation.static_states if group.is_state else num_blocks
        return ToyMemory(
            num_blocks, group.block_bytes, extent_blocks, self.device_memory, can_shift=self.info.can_shift
        )

    def step(self, batch: Batch, kv: Sequence[BlockMemory], samplers: Sequence[Sampler]) -> StepResult:
        logits = self.logits(batch, kv)
        result = sample_batch(_THREAD, logits, samplers, batch.drafts, batch.draft_starts, masks=batch.masks)
        if self.info.state_bytes:
            self._store_states(batch, kv[-1], result)
        return StepResult(result, self._hidden)

    def text_bytes(self, num_tokens: int, num_texts: int) -> int:
        raise NotImplementedError

    def new_head_state(self) -> ToyHeadState:
        return ToyHeadState()

    def predict(self, batch: Batch, _: Sequence[BlockMemory], counts: Sequence[int]) -> list[list[int]]:
        """Tokens that often follow. Every token that it writes to is checked to be the sequence's alone."""
        assert not self.closed
        assert all(isinstance(state, ToyHeadState) for state in batch.heads)
        starts = np.cumsum([0, *counts]).astype(np.int32)
        positions = [
            p + i for p, count in zip(batch.positions.tolist(), counts, strict=True) for i in range(count)
        ]
        drafted = replace(batch, sequence_starts=starts, positions=np.array(positions, np.int32))
        _check_tables(drafted, batch.block_tables[0], None)
        for table, count, position in zip(batch.block_tables[0], counts, batch.positions, strict=True):
            assert (table[: (int(position) + count) // BLOCK_TOKENS + 1] >= 0).all()
        self.num_predicted += sum(counts)
        return [
            [(token + i) % _CYCLE for i in range(1, count + 1)]
            for token, count in zip(batch.tokens.tolist(), counts, strict=True)
        ]

    def logits(self, batch: Batch, kv: Sequence[BlockMemory]) -> NDArray[np.float32]:
        """[R, VOCABULARY]; hidden states are made as logits are."""
        assert not self.closed
        hidden = np.empty(0, np.int32) if batch.hidden is None else batch.hidden
        wanted = np.concatenate([batch.rows, hidden])
        self.is_asleep = False
        self._check(batch)
        if self.info.state_bytes:
            states = self._states_of(batch, kv[-1])
        if POISON in batch.tokens:
            raise NativeError("poisoned")
        self.steps.append(np.diff(batch.sequence_starts).tolist())
        self.threads.append(batch.num_threads)
        self.clock.now_s += self.step_s + 0.001 * len(batch.tokens)
        rows = np.searchsorted(batch.sequence_starts, wanted, side="right") - 1
        seen: list[list[Values]] = [[] for _ in rows]
        for group, memory, tables in zip(self.info.groups, kv, batch.block_tables, strict=True):
            assert isinstance(memory, ToyMemory)
            if group.is_state:
                for of_row, row in zip(seen, wanted, strict=True):
                    of_row.append(_state_values(states[row], int(batch.tokens[row])))
                continue
            self._store(batch, memory, tables, group.window)
            for of_row, sequence, row in zip(seen, rows, wanted, strict=True):
                last = int(batch.positions[row])
                of_row.append(memory.values(tables[sequence], _begin(last, group.window), last + 1))
        logits = np.empty((len(rows), VOCABULARY), np.float32)
        for out, of_row in zip(logits, seen, strict=True):
            out[:] = _logits_behind(of_row, self.salt, self.is_habitual)
        self._hidden = logits[len(batch.rows) :, :HIDDEN_SIZE]
        return logits[: len(batch.rows)]

    def _store(self, batch: Batch, memory: ToyMemory, tables: NDArray[np.int32], window: int | None) -> None:
        for table, (start, end) in zip(tables, pairwise(batch.sequence_starts), strict=True):
            first = int(batch.positions[start])
            before = memory.values(table, _begin(first, window), first)
            memory.store(table, first, toy_values(before, batch.tokens[start:end], window))

    def _states_of(self, batch: Batch, memory: BlockMemory) -> list[int]:
        """Behind each of the batch's tokens. What is to be written is undefined until the step has ended."""
        assert isinstance(memory, ToyMemory)
        tables = batch.block_tables[-1]
        starts = [
            memory.state(int(read), int(batch.positions[start]), toy_state(()))
            for (read, _), start in zip(tables, batch.sequence_starts[:-1], strict=True)
        ]
        memory.spoil(tables[:, 1].tolist())
        states: list[int] = []
        for state, (start, end) in zip(starts, pairwise(batch.sequence_starts), strict=True):
            for token in batch.tokens[start:end].tolist():
                state = toy_state([token], state)
                states.append(state)
        self._states = states
        return states

    def _store_states(self, batch: Batch, memory: BlockMemory, result: SampleResult) -> None:
        """Those behind each sequence's own tokens and the drafts that were right."""
        assert isinstance(memory, ToyMemory)
        num_rejected = np.zeros(len(batch.sequence_starts) - 1, np.int32)
        if batch.drafts is not None and batch.draft_starts is not None:
            complete = np.unique(np.searchsorted(batch.sequence_starts, batch.rows, side="right") - 1)
            num_right = np.maximum(np.diff(result.starts) - 1, 0)
            num_rejected[complete] = np.diff(batch.draft_starts) - num_right
        for (_, block), end, rejected in zip(
            batch.block_tables[-1].tolist(), batch.sequence_starts[1:], num_rejected, strict=True
        ):
            last = int(end) - 1 - int(rejected)
            memory.store_state(block, int(batch.positions[last]) + 1, self._states[last])

    def sleep(self) -> None:
        assert not self.closed
        self.is_asleep = True

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    def _check(self, batch: Batch) -> None:
        arrays = (batch.tokens, batch.positions, batch.sequence_starts, *batch.block_tables, batch.rows)
        assert all(array.dtype == np.int32 and array.flags.c_contiguous for array in arrays)
        assert len(batch.tokens) == len(batch.positions) == batch.sequence_starts[-1] > 0
        assert (np.diff(batch.sequence_starts) > 0).all()
        for start, end in pairwise(batch.sequence_starts):
            assert (np.diff(batch.positions[start:end]) == 1).all()
        assert len(batch.block_tables) == len(self.info.groups)
        for group, tables in zip(self.info.groups, batch.block_tables, strict=True):
            if group.is_state:
                _check_states(batch, tables)
            else:
                _check_tables(batch, tables, group.window)


def _check_tables(batch: Batch, tables: NDArray[np.int32], window: int | None) -> None:
    written, others = [], []
    for table, (start, end) in zip(tables, pairwise(batch.sequence_starts), strict=True):
        first, last = batch.positions[[start, end - 1]] // BLOCK_TOKENS
        seen = _begin(int(batch.positions[start]), window) // BLOCK_TOKENS
        written += table[first : last + 1].tolist()
        others += table[seen:first].tolist()
    assert len(set(written)) == len(written), "two sequences write to one block"
    assert set(written).isdisjoint(others), "one sequence writes what another reads"


def _check_states(batch: Batch, tables: NDArray[np.int32]) -> None:
    assert tables.shape == (len(batch.sequence_starts) - 1, 2)
    reads, writes = tables[:, 0].tolist(), tables[:, 1].tolist()
    assert min(writes) >= 0, "a state is written nowhere"
    assert len(set(writes)) == len(writes), "two sequences write to one state"
    for index, write in enumerate(writes):
        assert write not in reads[:index] + reads[index + 1 :], "one sequence writes the state of another"
    at_start = [position == 0 for position in batch.positions[batch.sequence_starts[:-1]]]
    assert [read == -1 for read in reads] == at_start, "a state at the start, or none behind it"


class ToyHeadState:
    """Nothing: what its head drafts hangs on the latest token alone."""

    def forget(self) -> None:
        pass


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
