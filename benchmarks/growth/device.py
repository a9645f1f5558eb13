"""A device that computes nothing: each token is followed by the next number, up to a period.

Its clock goes on by what a step would take; so what the engine learns of the device does not depend on the
machine that runs the benchmark.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import puna.engine.steps.sampling as sampling
from puna._native import Arena, ThreadPool
from puna.backends.base import Batch, ModelInfo

VOCABULARY = 128
PERIOD = 32
"""After so many tokens a text repeats."""
BLOCK_BYTES = 64


class DeviceClock:
    """Seconds, of the device's steps alone."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class NoOpModel:
    """A step takes step_s and token_s for each token on the clock; what it really took is in spent_ns."""

    def __init__(self, clock: DeviceClock, step_s: float, token_s: float) -> None:
        self.info = ModelInfo(
            architecture="none",
            vocab_size=VOCABULARY,
            context_length=1 << 20,
            num_layers=1,
            block_bytes=BLOCK_BYTES,
            kv_type="f16",
            weight_bytes=0,
            can_shift=True,
        )
        self.spent_ns = 0
        self.num_tokens = 0
        self._clock = clock
        self._step_s = step_s
        self._token_s = token_s
        _time_sampling(self)

    def run(self, batch: Batch, arena: Arena) -> NDArray[np.float32]:  # noqa: ARG002
        start_ns = time.thread_time_ns()
        self._clock.now_s += self._step_s + self._token_s * len(batch.tokens)
        self.num_tokens += len(batch.tokens)
        logits = np.zeros((len(batch.rows), VOCABULARY), np.float32)
        logits[np.arange(len(batch.rows)), (batch.tokens[batch.rows] + 1) % PERIOD] = 1
        self.spent_ns += time.thread_time_ns() - start_ns
        return logits

    def move_kv(self, *_: object) -> None:
        pass

    def sleep(self) -> None:
        pass

    def close(self) -> None:
        pass


class NoOpBackend:
    """Its models are made without it."""

    def __init__(self) -> None:
        self.pool = ThreadPool(1)

    def load(self, source: object) -> NoOpModel:
        raise NotImplementedError(source)

    def close(self) -> None:
        self.pool.close()


def _time_sampling(model: NoOpModel) -> None:
    """Sampling counts as the device's."""
    sample_batch = sampling.sample_batch

    def timed(*arguments: Any) -> Any:
        start_ns = time.thread_time_ns()
        result = sample_batch(*arguments)
        model.spent_ns += time.thread_time_ns() - start_ns
        return result

    sampling.sample_batch = timed
