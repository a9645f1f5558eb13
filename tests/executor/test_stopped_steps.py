"""A step that is stopped ends at once, also within attention to a long context, and leaves nothing behind."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from puna._native import NativeError, StepControl
from puna.backends.base import Batch, KvReservation
from puna.backends.cpu import CpuBackend
from puna.kv import BLOCK_TOKENS
from tests.forward import load_file

pytestmark = pytest.mark.native

CONTEXT, NUM_TOKENS = 16_000, 64


def test_a_step_that_was_stopped_anywhere_is_as_if_it_had_never_been(smollm2_path: Path):
    backend = CpuBackend(num_threads=2)
    model = load_file(backend, smollm2_path)
    kv_bytes = 16 * model.info.block_bytes
    (memory,) = model.reserve(KvReservation(kv_bytes, kv_bytes, 16 * BLOCK_TOKENS))
    memory.allocate(range(memory.num_blocks // memory.extent_blocks))
    # The context is the same block again and again.
    table = np.zeros(((CONTEXT + NUM_TOKENS) // BLOCK_TOKENS,), np.int32)
    table[CONTEXT // BLOCK_TOKENS :] = np.arange(1, 1 + NUM_TOKENS // BLOCK_TOKENS)
    control = StepControl()
    batch = Batch(
        tokens=np.arange(NUM_TOKENS, dtype=np.int32) + 100,
        positions=np.arange(CONTEXT, CONTEXT + NUM_TOKENS, dtype=np.int32),
        sequence_starts=np.array([0, NUM_TOKENS], np.int32),
        block_tables=(table[None],),
        rows=np.array([NUM_TOKENS - 1], np.int32),
        control=control,
    )
    expected = model.logits(batch, [memory]).copy()
    num_stopped = 0
    for delay_s in (0.002, 0.005, 0.01, 0.02, 0.04, 0.08):
        control.begin()
        timer = threading.Timer(delay_s, control.stop)
        timer.start()
        try:
            model.logits(batch, [memory])
        except NativeError:
            num_stopped += 1
        timer.join()
        control.begin()
        assert np.array_equal(model.logits(batch, [memory]), expected)
    assert num_stopped
    memory.close()
    backend.close()
