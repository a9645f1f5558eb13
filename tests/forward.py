"""Runs a loaded model directly, without engine or scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puna.backends.base import Batch, DeviceAdapter, KvReservation, ModelSource
from puna.backends.cpu import CpuBackend
from puna.backends.cpu.backend import CpuModel
from puna.kv import BLOCK_TOKENS


def load_file(backend: CpuBackend, path: Path, drafter: Path | None = None) -> CpuModel:
    """drafter: of a file that drafts for it, and for no other model."""
    with ModelSource.open(path) as source:
        if drafter is None:
            return backend.load(source)
        with ModelSource.open(drafter) as other:
            return backend.load(replace(source, drafter=other.descriptors))


def load_adapter(model: CpuModel, path: Path) -> DeviceAdapter:
    with ModelSource.open(path) as source:
        return model.load_adapter(source)


def all_logits(
    model: CpuModel, tokens: Sequence[int], chunk: int = 256, adapter: DeviceAdapter | None = None
) -> NDArray[np.float32]:
    """Logits [len(tokens), vocab_size] of one sequence, `chunk` tokens a step, blocks out of order."""
    return logits_at(model, tokens, range(len(tokens)), chunk, adapter)


def logits_at(
    model: CpuModel,
    tokens: Sequence[int],
    positions: Sequence[int],
    chunk: int = 256,
    adapter: DeviceAdapter | None = None,
) -> NDArray[np.float32]:
    """Those [len(positions), vocab_size] behind some tokens of the sequence; positions ascend."""
    num_blocks = -(-len(tokens) // BLOCK_TOKENS)
    kv_bytes = num_blocks * model.info.block_bytes + 2 * model.info.state_bytes
    memories = model.reserve(KvReservation(kv_bytes, kv_bytes, len(tokens), static_states=2))
    table = np.arange(num_blocks, dtype=np.int32)[::-1].reshape(1, -1).copy()
    states = np.array([[-1, 0]], np.int32)  # to be read, to be written
    parts = []
    for start in range(0, len(tokens), chunk):
        piece = np.array(tokens[start : start + chunk], dtype=np.int32)
        rows = [position - start for position in positions if start <= position < start + len(piece)]
        batch = Batch(
            tokens=piece,
            positions=np.arange(start, start + len(piece), dtype=np.int32),
            sequence_starts=np.array([0, len(piece)], dtype=np.int32),
            block_tables=tuple(states if group.is_state else table for group in model.info.groups),
            rows=np.array(rows, dtype=np.int32),
            adapters=(adapter,),
        )
        parts.append(model.logits(batch, memories).copy())
        states = np.array([[states[0, 1], 1 - states[0, 1]]], np.int32)
    for memory in memories:
        memory.close()
    return np.concatenate(parts)


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = x - np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return result
