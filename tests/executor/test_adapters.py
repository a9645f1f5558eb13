"""Rows with adapters: on every instruction set, what a row gets depends on its own adapter alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna._native import NativeError
from puna.backends.base import BLOCK_TOKENS, Batch, DeviceAdapter, KvReservation
from puna.backends.cpu import CpuBackend
from puna.backends.cpu.backend import CpuModel
from tests.adapters import write_adapter
from tests.forward import load_adapter, load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

Adapters = Sequence[DeviceAdapter | None]
LENGTHS = [1, 7, 2, 1, 11, 1]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with matrices of more than two segments of columns; adapters of different ranks and types."""
    directory = tmp_path_factory.mktemp("adapters")
    model = write_tiny(directory / "model", replace(TINY["llama-untied"], ffn=1184), "Q8_0")
    write_adapter(directory / "a", model, rank=3, seed=1)
    write_adapter(directory / "b", model, rank=18, seed=2, weight_type="BF16")
    return directory


@pytest.fixture
def model(isa: str, files: Path) -> Iterator[CpuModel]:
    backend = CpuBackend(num_threads=2, isa=isa)
    model = load_file(backend, files / "model")
    yield model
    model.close()
    backend.close()


def logits(model: CpuModel, lengths: Sequence[int], adapters: Adapters) -> NDArray[np.float32]:
    """[sum(lengths), vocab_size] of one step; tokens follow from sequences' lengths."""
    starts = np.cumsum([0, *lengths], dtype=np.int32)
    width = -(-max(lengths) // BLOCK_TOKENS)
    num_tokens = len(lengths) * width * BLOCK_TOKENS
    room = num_tokens // BLOCK_TOKENS * model.info.block_bytes
    memory = model.reserve(KvReservation(room, room, num_tokens))
    batch = Batch(
        tokens=np.concatenate([np.arange(n, dtype=np.int32) + n for n in lengths]),
        positions=np.concatenate([np.arange(n, dtype=np.int32) for n in lengths]),
        sequence_starts=starts,
        block_tables=(np.arange(len(lengths) * width, dtype=np.int32).reshape(len(lengths), -1),),
        rows=np.arange(starts[-1], dtype=np.int32),
        adapters=adapters,
    )
    found = model.logits(batch, memory).copy()
    for each in memory:
        each.close()
    return found


def test_together_and_alone(model: CpuModel, files: Path) -> None:
    a, b = load_adapter(model, files / "a"), load_adapter(model, files / "b")
    adapters = [a, b, None, b, a, None]
    alone = [logits(model, [n], [adapter]) for n, adapter in zip(LENGTHS, adapters, strict=True)]
    np.testing.assert_array_equal(logits(model, LENGTHS, adapters), np.concatenate(alone))
    np.testing.assert_array_equal(logits(model, LENGTHS[2:3], ()), alone[2])
    assert not np.array_equal(logits(model, LENGTHS[:1], [b]), alone[0])
    assert not np.array_equal(logits(model, LENGTHS[:1], ()), alone[0])


def test_an_adapter_returns_with_the_run_after_a_release(model: CpuModel, files: Path) -> None:
    a = load_adapter(model, files / "a")
    before = logits(model, LENGTHS, [a] * len(LENGTHS))
    model.sleep()
    np.testing.assert_array_equal(logits(model, LENGTHS, [a] * len(LENGTHS)), before)


def test_adapters_of_another_model_are_refused(model: CpuModel, files: Path) -> None:
    backend = CpuBackend(num_threads=1)
    other = load_file(backend, files / "model")
    with pytest.raises(NativeError, match="the adapter is not one of this model's"):
        logits(model, [1], [load_adapter(other, files / "a")])
    with pytest.raises(NativeError, match="there are not as many adapters as sequences"):
        logits(model, [1], [load_adapter(model, files / "a")] * 2)
    other.close()
    backend.close()
