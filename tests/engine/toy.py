"""A model whose next token depends on its whole context, read back through the block table.

Lost, overwritten or misplaced KV therefore changes the output, and what it should be is known without it.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puna._native import Arena, NativeError, ThreadPool
from puna.backends.base import Batch, ModelInfo, ModelLoadError
from puna.engine import EngineCore, EngineSettings, Request, SamplingParams, StepOutput
from puna.kv import BLOCK_TOKENS

VOCABULARY = 97
POISON = VOCABULARY - 1  # a prompt with this token makes the step fail
BLOCK_BYTES = 4 * BLOCK_TOKENS  # the "KV" of a token is its id
GREEDY = SamplingParams(temperature=0)


def toy_logits(context: NDArray[np.int32], salt: int = 0) -> NDArray[np.float32]:
    """[VOCABULARY]; POISON is never likely."""
    random = np.random.default_rng([salt, zlib.crc32(context.tobytes())])
    logits = random.standard_normal(VOCABULARY).astype(np.float32)
    logits[POISON] = -100
    return logits


def expected_tokens(prompt: list[int], count: int, salt: int = 0) -> list[int]:
    """What greedy sampling must give."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(toy_logits(np.array(tokens, dtype=np.int32), salt).argmax()))
    return tokens[len(prompt) :]


class ToyModel:
    """Checks every batch as the real executor does.

    steps: the number of tokens of each sequence, per run; threads: what each run was limited to.
    """

    def __init__(
        self,
        salt: int = 0,
        context_length: int = 1000,
        block_bytes: int = BLOCK_BYTES,
        can_shift: bool = True,
    ) -> None:
        self.info = ModelInfo(
            architecture="toy",
            vocab_size=VOCABULARY,
            context_length=context_length,
            num_layers=1,
            block_bytes=block_bytes,
            weight_bytes=0,
            can_shift=can_shift,
        )
        self.salt = salt
        self.steps: list[list[int]] = []
        self.threads: list[int | None] = []
        self.closed = False

    def run(self, batch: Batch, arena: Arena) -> NDArray[np.float32]:
        assert not self.closed
        self._check(batch)
        if POISON in batch.tokens:
            raise NativeError("poisoned")
        self.steps.append(np.diff(batch.sequence_starts).tolist())
        self.threads.append(batch.num_threads)
        rows = np.searchsorted(batch.sequence_starts, batch.rows, side="right") - 1
        for sequence in range(len(batch.block_tables)):
            self._store(batch, arena, sequence)
        return np.array(
            [
                toy_logits(
                    self._context(arena, batch.block_tables[sequence], batch.positions[row]), self.salt
                )
                for sequence, row in zip(rows, batch.rows, strict=True)
            ],
            dtype=np.float32,
        ).reshape(len(batch.rows), VOCABULARY)

    def move_kv(
        self,
        arena: Arena,
        source: NDArray[np.int32],
        destination: NDArray[np.int32],
        source_begin: int,
        destination_begin: int,
        num_tokens: int,
    ) -> None:
        assert not self.closed
        if source_begin != destination_begin and not self.info.can_shift:
            raise NativeError("this model's keys cannot be turned to another position")
        for i in range(num_tokens):
            token = self._slot(arena, source, source_begin + i)[0]
            self._slot(arena, destination, destination_begin + i)[0] = token

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    def _check(self, batch: Batch) -> None:
        arrays = (batch.tokens, batch.positions, batch.sequence_starts, batch.block_tables, batch.rows)
        assert all(array.dtype == np.int32 and array.flags.c_contiguous for array in arrays)
        assert len(batch.tokens) == len(batch.positions) == batch.sequence_starts[-1] > 0
        assert len(batch.sequence_starts) == len(batch.block_tables) + 1
        assert (np.diff(batch.sequence_starts) > 0).all()
        tables = []
        for start, end, table in zip(
            batch.sequence_starts, batch.sequence_starts[1:], batch.block_tables, strict=False
        ):
            positions = batch.positions[start:end]
            assert (np.diff(positions) == 1).all()
            tables.append(table[: positions[-1] // BLOCK_TOKENS + 1])
        blocks = np.concatenate(tables)
        assert len(np.unique(blocks)) == len(blocks), "two sequences write to one block"

    def _store(self, batch: Batch, arena: Arena, sequence: int) -> None:
        start, end = batch.sequence_starts[sequence : sequence + 2]
        for token, position in zip(batch.tokens[start:end], batch.positions[start:end], strict=True):
            self._slot(arena, batch.block_tables[sequence], position)[0] = token

    def _context(self, arena: Arena, table: NDArray[np.int32], position: int) -> NDArray[np.int32]:
        blocks = table[: position // BLOCK_TOKENS + 1]
        return np.concatenate([self._tokens(arena, block) for block in blocks])[: position + 1]

    def _slot(self, arena: Arena, table: NDArray[np.int32], position: int) -> NDArray[np.int32]:
        """A view [1] of where the token at this position is kept."""
        block, slot = divmod(position, BLOCK_TOKENS)
        return self._tokens(arena, table[block])[slot : slot + 1]

    def _tokens(self, arena: Arena, block: int) -> NDArray[np.int32]:
        return arena.block(int(block)).view(np.int32)[:BLOCK_TOKENS]


class ToyBackend:
    """`load` takes a path named after the salt: Path("7"); a name that is no number cannot be loaded."""

    def __init__(self) -> None:
        self.pool = ThreadPool(1)

    def load(self, path: Path) -> ToyModel:
        if not path.name.isdigit():
            raise ModelLoadError(f"{path}: not a toy")
        return ToyModel(int(path.name))

    def close(self) -> None:
        self.pool.close()


def toy_engine(model: ToyModel | None = None, *, num_blocks: int = 1000, **settings: int) -> EngineCore:
    """An engine with one model, "toy", and memory for `num_blocks` of its blocks."""
    limit = num_blocks * BLOCK_BYTES
    engine = EngineCore(ToyBackend(), EngineSettings(kv_limit_bytes=limit, **settings))
    engine.attach_model("toy", model or ToyModel())
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
