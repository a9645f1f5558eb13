"""The device of device.py for builds in which it gave logits, and the engine kept the memory and sampled."""

from __future__ import annotations

import importlib
import time
from typing import Any

import numpy as np

from benchmarks.growth.device_clock import BLOCK_BYTES, PERIOD, VOCABULARY, DeviceClock
from puna._native import ThreadPool
from puna.backends.base import ModelInfo

sampling = importlib.import_module("puna.engine.steps.sampling")  # only those builds have it


class NoOpModel:
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

    def run(self, batch: Any, arena: Any) -> Any:  # noqa: ARG002
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
