"""puna.kvcached: per-layer tensors over blocks that have memory while they are allocated."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from puna import kvcached

pytestmark = pytest.mark.native

MIB = 1 << 20
# Blocks of 64 KiB: 4 layers, K and V, of 16 tokens with 4 heads of 64 halves.
SHAPE, LAYERS, BLOCK = (2, 0, 4, 64), 4, 64 << 10


def resident_bytes() -> int:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1]) * 1024


@pytest.fixture(autouse=True)
def initialized() -> Iterator[None]:
    kvcached.init_kvcached()
    kvcached.set_memory_limit(32 * MIB)
    yield
    kvcached.shutdown_kvcached()


def allocate(shape: tuple[Any, ...] = SHAPE, **changes: Any) -> list[np.ndarray[Any, Any]]:
    arguments = {"block_size": 16, "dtype": "float16", "device": "cpu", "num_layers": LAYERS}
    return kvcached.alloc_kv_cache(shape, **{**arguments, **changes})


def test_tensors_of_all_layers():
    tensors = allocate((2, 100, 4, 64))
    assert len(tensors) == LAYERS
    for tensor in tensors:
        assert tensor.shape == (2, 100, 16, 4, 64)
        assert tensor.dtype == np.float16
        assert tensor.flags.writeable
        assert tensor[0, 0].flags.c_contiguous
    assert tensors[0].strides == (8192, BLOCK, 512, 128, 2)


def test_every_element_has_a_place_of_its_own():
    tensors = allocate((2, 8, 4, 64))
    kvcached.alloc_kv_bridge(8)
    for layer, tensor in enumerate(tensors):
        for kind in range(2):
            for block in range(8):
                tensor[kind, block] = layer * 100 + kind * 10 + block
    for layer, tensor in enumerate(tensors):
        for kind in range(2):
            for block in range(8):
                assert (tensor[kind, block] == layer * 100 + kind * 10 + block).all()


@pytest.mark.parametrize("missing", [None, 0])
def test_num_blocks_follows_from_the_limit(missing: int | None):
    assert allocate((2, missing, 4, 64))[0].shape[1] == 32 * MIB // BLOCK
    assert len(kvcached.alloc_kv_bridge(32 * MIB // BLOCK)) == 32 * MIB // BLOCK


def test_shapes_may_name_the_block_size():
    assert allocate((2, 7, 16, 4, 64))[0].shape == (2, 7, 16, 4, 64)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint8", np.float16, np.dtype("f4")])
def test_dtypes(dtype: Any):
    tensor = allocate((2, 4, 2, 8), dtype=dtype)[0]
    assert tensor.dtype == np.dtype(dtype)
    kvcached.alloc_kv_bridge(4)
    tensor[:] = 3
    assert (tensor == 3).all()


def test_dtypes_of_other_libraries_go_by_name():
    class Half:
        def __repr__(self) -> str:
            return "torch.float16"

    assert allocate(dtype=Half())[0].dtype == np.float16


def test_tensors_are_exported_by_dlpack():
    tensor = allocate((2, 4, 4, 64))[2]
    kvcached.alloc_kv_bridge(4)
    shared = np.from_dlpack(tensor)
    tensor[1, 3] = 5
    assert shared.shape == tensor.shape
    assert (shared[1, 3] == 5).all()


def test_blocks_have_memory_while_they_are_allocated():
    allocate()
    before = resident_bytes()
    ids = kvcached.alloc_kv_bridge(400)
    assert resident_bytes() - before > 24 * MIB
    assert kvcached.memory_stats().committed == 400 * BLOCK
    assert kvcached.free_kv_bridge(ids[:300]) == 300
    assert resident_bytes() - before < 8 * MIB
    stats = kvcached.memory_stats()
    assert (stats.limit, stats.committed, stats.peak_committed) == (32 * MIB, 100 * BLOCK, 400 * BLOCK)
    assert (stats.num_blocks, stats.num_used_blocks) == (512, 100)
    kvcached.shutdown_kvcached()
    assert resident_bytes() - before < 2 * MIB


def test_blocks_are_used_again_and_others_keep_their_data():
    tensors = allocate()
    ids = kvcached.alloc_kv_bridge(50)
    assert len(set(ids)) == 50
    for layer, tensor in enumerate(tensors):
        tensor[:, ids] = layer + 1
    freed, kept = ids[10:30], ids[:10] + ids[30:]
    kvcached.free_kv_bridge(np.array(freed))
    again = kvcached.alloc_kv_bridge(20)
    assert sorted(again) == sorted(freed)
    for tensor in tensors:
        tensor[:, again] = 9
    for layer, tensor in enumerate(tensors):
        assert (tensor[:, kept] == layer + 1).all()


def test_all_or_nothing_at_the_limit():
    allocate((2, 1000, 4, 64))
    ids = kvcached.alloc_kv_bridge(500)
    with pytest.raises(MemoryError, match="exceed the limit of 33554432, of which 32768000 are committed"):
        kvcached.alloc_kv_bridge(13)
    assert kvcached.memory_stats().num_used_blocks == 500
    assert len(kvcached.alloc_kv_bridge(12)) == 12
    kvcached.free_kv_bridge(ids)
    assert kvcached.memory_stats().committed == 12 * BLOCK


def test_the_cache_has_no_more_blocks_than_it_has():
    allocate((2, 10, 4, 64))
    with pytest.raises(MemoryError, match="11 blocks asked for, but 10 of 10 are free"):
        kvcached.alloc_kv_bridge(11)
    assert kvcached.alloc_kv_bridge(0) == []
    assert kvcached.free_kv_bridge([]) == 0


def test_a_limit_below_what_is_committed_applies_as_blocks_are_freed():
    tensors = allocate()
    ids = kvcached.alloc_kv_bridge(256)
    tensors[0][:, ids] = 6
    assert kvcached.set_memory_limit(8 * MIB) is False
    assert kvcached.memory_stats().committed == 16 * MIB
    with pytest.raises(MemoryError, match="limit of 8388608"):
        kvcached.alloc_kv_bridge(1)
    kvcached.free_kv_bridge(ids[:200])
    assert (tensors[0][:, ids[200:]] == 6).all()
    kvcached.alloc_kv_bridge(128 - 56)
    with pytest.raises(MemoryError):
        kvcached.alloc_kv_bridge(1)
    assert kvcached.set_memory_limit(32 * MIB) is True
    assert len(kvcached.alloc_kv_bridge(1)) == 1


def test_arrays_outlive_the_shutdown():
    tensor = allocate()[1]
    ids = kvcached.alloc_kv_bridge(100)
    tensor[:, ids] = 7
    kvcached.shutdown_kvcached()
    assert not tensor[:, ids].any()
    view = tensor[0, 3]
    del tensor
    gc.collect()
    assert not view.any()


def test_one_cache_after_the_other():
    for num_blocks in (3, 5):
        kvcached.init_kvcached()
        kvcached.init_kvcached()  # changes nothing
        assert allocate((2, num_blocks, 4, 64))[0].shape[1] == num_blocks
        with pytest.raises(RuntimeError, match="there is a KV cache already"):
            allocate()
        assert kvcached.alloc_kv_bridge(2) == [0, 1]
        kvcached.shutdown_kvcached()
        kvcached.shutdown_kvcached()


def test_nothing_works_before_its_time():
    with pytest.raises(RuntimeError, match=r"alloc_kv_cache\(\) first"):
        kvcached.alloc_kv_bridge(1)
    with pytest.raises(RuntimeError, match=r"alloc_kv_cache\(\) first"):
        kvcached.free_kv_bridge([0])
    kvcached.shutdown_kvcached()
    for call in (allocate, kvcached.memory_stats, lambda: kvcached.set_memory_limit(1)):
        with pytest.raises(RuntimeError, match=r"init_kvcached\(\) first"):
            call()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 1, 5], "block 5 is not allocated"),
        ([0, 0], "block 0 comes twice"),
        ([-1], "block -1 is not allocated"),
        ([1 << 62], "block 4611686018427387904 is not allocated"),
        ([0.5], "a list of integers"),
        ([[0]], "a list of integers"),
        (["0"], "a list of integers"),
        ([1 << 70], "a list of integers"),
    ],
)
def test_what_is_no_block_cannot_be_freed(ids: list[Any], message: str):
    allocate((2, 10, 4, 64))
    kvcached.alloc_kv_bridge(5)
    with pytest.raises(ValueError, match=message):
        kvcached.free_kv_bridge(ids)
    assert kvcached.memory_stats().num_used_blocks == 5
    kvcached.free_kv_bridge([0, 1, 2, 3, 4])
    with pytest.raises(ValueError, match="block 0 is not allocated"):
        kvcached.free_kv_bridge([0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "cuda:0"}, "unsupported device 'cuda:0': only cpu"),
        ({"dtype": "bfloat16"}, "unsupported dtype 'bfloat16': only float16, float32"),
        ({"dtype": np.float64}, "unsupported dtype 'float64'"),
        ({"attention_type": "MLA"}, "unsupported attention_type 'MLA': only MHA, GQA"),
        ({"kv_layout": "HND"}, "unsupported kv_layout 'HND': only NHD"),
        ({"block_size": 0}, "block_size is 0"),
        ({"block_size": 2.0}, "block_size is 2.0"),
        ({"num_layers": -1}, "num_layers is -1"),
        ({"shape": (2, 4, 64)}, "neither"),
        ({"shape": (1, 8, 4, 64)}, "neither"),
        ({"shape": (2, -8, 4, 64)}, "num_blocks of kvcache_shape"),
        ({"shape": (2, 8, 0, 64)}, "num_heads of kvcache_shape"),
        ({"shape": (2, 8, 4, None)}, "head_dim of kvcache_shape"),
        ({"shape": (2, 8, 32, 4, 64)}, "is not for a block_size of 16"),
        ({"shape": (2, 1 << 31, 4, 64)}, "num_blocks is 2147483648, not within 1"),
        ({"shape": (2, 1 << 30, 4, 1 << 20)}, "make no sense"),
        ({"shape": (2, 1 << 80, 4, 64)}, "make no sense"),
    ],
)
def test_what_makes_no_sense_is_named(changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        allocate(**changes)
    assert len(allocate()) == LAYERS  # nothing was left behind


def test_a_limit_for_less_than_a_block():
    kvcached.set_memory_limit(4096)
    with pytest.raises(MemoryError, match="a block of 65536 bytes exceeds the limit of 4096"):
        allocate()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device": "cuda"}, "unsupported device 'cuda'"),
        ({"tp_size": 2}, "tp_size 2"),
        ({"tp_rank": 1}, "tp_rank 1"),
    ],
)
def test_what_cannot_be_initialized(arguments: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        kvcached.init_kvcached(**arguments)


@pytest.mark.parametrize("limit", [-1, 1 << 63, "256MB", 1e9, None])
def test_limits_that_make_no_sense(limit: Any):
    with pytest.raises(ValueError, match=re.escape(f"a limit of {limit!r} makes no sense")) as error:
        kvcached.set_memory_limit(limit)
    assert "bytes" in str(error.value)
    assert kvcached.memory_stats().limit == 32 * MIB


def test_negative_numbers_of_blocks():
    allocate()
    with pytest.raises(ValueError, match="num_blocks is -1"):
        kvcached.alloc_kv_bridge(-1)


def test_many_threads():
    tensor = allocate((2, 256, 4, 64))[0]
    errors: list[BaseException] = []

    def work(mark: int) -> None:
        try:
            for _ in range(40):
                ids = kvcached.alloc_kv_bridge(16)
                tensor[:, ids] = mark
                assert (tensor[:, ids] == mark).all()
                kvcached.free_kv_bridge(ids)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert kvcached.memory_stats().committed == 0
