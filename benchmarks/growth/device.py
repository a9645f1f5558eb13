"""A device that computes nothing: each token is followed by the next number, up to a period.

Its clock goes on by what a step would take; so what the engine learns of the device does not depend on the
machine that runs the benchmark.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import puna.backends.base
from benchmarks.growth.device_clock import BLOCK_BYTES, PERIOD, VOCABULARY, DeviceClock
from puna._native import PoolActivity, Sampler, ThreadPool, sample_batch
from puna.backends.base import Batch, BlockMemory, KvGroup, KvReservation, ModelInfo

_THREAD = ThreadPool(1)  # the caller's


class NoMemory:
    """Blocks that hold nothing."""

    extent_blocks = 1

    def __init__(self, num_blocks: int, block_bytes: int) -> None:
        self.num_blocks = num_blocks
        self.block_bytes = self.extent_bytes = block_bytes

    def allocate(self, extents: Sequence[int]) -> None:
        pass

    populate = free = allocate

    def prefetch(self, extent: int) -> None:
        pass

    def read(self, block: int, begin: int = 0, end: int | None = None) -> NDArray[np.uint8]:  # noqa: ARG002
        return np.zeros(self.block_bytes, np.uint8)[begin:end]

    def write(self, block: int, content: NDArray[np.uint8], begin: int = 0) -> None:
        pass

    def move(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass


class NoOpModel:
    """A step takes step_s and token_s for each token on the clock; what it really took is in spent_ns.

    state_bytes: of recurrent layers; 0: there are none.
    """

    def __init__(self, clock: DeviceClock, step_s: float, token_s: float, state_bytes: int = 0) -> None:
        groups = [KvGroup(num_layers=1, block_bytes=BLOCK_BYTES)]
        if state_bytes:
            groups.append(KvGroup(num_layers=1, block_bytes=state_bytes, is_state=True))
        self.info = ModelInfo(
            architecture="none",
            vocab_size=VOCABULARY,
            context_length=1 << 20,
            num_layers=1,
            groups=tuple(groups),
            kv_type="f16",
            weight_bytes=0,
            can_shift=not state_bytes,
        )
        self.spent_ns = 0
        self.num_tokens = 0
        self._clock = clock
        self._step_s = step_s
        self._token_s = token_s

    def reserve(self, reservation: KvReservation) -> tuple[NoMemory, ...]:
        return tuple(
            NoMemory(max(reservation.limit_bytes // group.block_bytes, 1), group.block_bytes)
            for group in self.info.groups
        )

    def step(self, batch: Batch, kv: Sequence[BlockMemory], samplers: Sequence[Sampler]) -> Any:  # noqa: ARG002
        start_ns = time.thread_time_ns()
        self._clock.now_s += self._step_s + self._token_s * len(batch.tokens)
        self.num_tokens += len(batch.tokens)
        logits = np.zeros((len(batch.rows), VOCABULARY), np.float32)
        logits[np.arange(len(batch.rows)), (batch.tokens[batch.rows] + 1) % PERIOD] = 1
        result = sample_batch(_THREAD, logits, samplers, batch.drafts, batch.draft_starts)
        self.spent_ns += time.thread_time_ns() - start_ns
        if not hasattr(puna.backends.base, "StepResult"):  # earlier builds
            return result
        return puna.backends.base.StepResult(result, np.zeros((0, 0), np.float32))

    def sleep(self) -> None:
        pass

    def close(self) -> None:
        pass


class NoOpBackend:
    """Its models are made without it."""

    def load(self, source: object) -> NoOpModel:
        raise NotImplementedError(source)

    def activity(self) -> PoolActivity:
        return _THREAD.activity()

    def close(self) -> None:
        pass
