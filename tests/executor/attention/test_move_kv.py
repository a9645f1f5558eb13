"""Tokens that move in the KV memory are as if they had been stored where they have come to lie."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puna._native import Arena, NativeError, ProgramBuilder, ThreadPool
from tests.executor import reference
from tests.executor.attention.kv_blocks import KvShape
from tests.executor.attention.kv_types import GROUP, KV_TYPES
from tests.executor.toy import (
    BLOCK_TOKENS,
    Chunk,
    Runner,
    attention,
    build,
    embedded,
    latent_attention,
    rows_of,
    write_gguf,
)

pytestmark = pytest.mark.native

VOCABULARY, NUM_BLOCKS, LENGTH = 120, 40, 75
TABLE = [9, 2, 30, 4, 17]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Layer:
    heads: int
    kv_heads: int
    head_dim: int
    style: str = ""  # not rotated
    rotary_dim: int = 0
    scale: float = 1.0
    begin: int = 0  # of what is rotated; of a latent, whose values are the columns before

    @property
    def inv_freq(self) -> NDArray[np.float32]:
        """Not a plain power of the base: as with factors for each frequency."""
        half = self.rotary_dim // 2
        return (1000.0 ** -(np.arange(half) / half) / np.linspace(1, 2, half)).astype(np.float32)

    def turned(self, keys: Floats, positions: Floats, scale: float) -> Floats:
        if not self.style:
            return keys
        return reference.rope(
            keys, positions, self.head_dim, self.style, self.inv_freq.astype(float), scale, self.begin
        )


LAYERS = [
    Layer(4, 2, 64, "neox", 64),
    Layer(6, 3, 40, "normal", 24, scale=1.3),
    Layer(2, 2, 18, "neox", 10, scale=0.7),
    Layer(3, 1, 32, "normal", 32),
    Layer(3, 1, 80, "normal", 16, scale=1.1, begin=64),
    Layer(2, 1, 20),
]


class Model:
    """Attentions over q, k and v looked up by token, so that what is stored is known."""

    def __init__(self, path: Path, isa: str, kv_type: str, num_threads: int = 2) -> None:
        rng = np.random.default_rng(3)
        self.shapes = [KvShape(kv_type, layer.kv_heads, layer.head_dim) for layer in LAYERS]
        self.tables = {
            f"{i}.{name}": rng.standard_normal((VOCABULARY, heads * layer.head_dim)).astype(np.float32)
            for i, layer in enumerate(LAYERS)
            for name, heads in (("q", layer.heads), ("k", layer.kv_heads), ("v", layer.kv_heads))
        }
        self.file = write_gguf(path / f"{kv_type}.gguf", self.tables)
        self.program = build(self.file, isa, self._define, kv_type)
        self.runner = Runner(self.program, NUM_BLOCKS, num_threads)

    def _define(self, b: ProgramBuilder) -> int:
        for i, layer in enumerate(LAYERS):
            q, k, v = (embedded(b, f"{i}.{name}", self.tables[f"{i}.{name}"].shape[1]) for name in "qkv")
            for x in (q, k) if layer.style else ():
                kind = {
                    "style": layer.style,
                    "inv_freq": layer.inv_freq,
                    "scale": layer.scale,
                    "begin": layer.begin,
                    "offset": 0,
                }
                b.op("Rope", [x], [x], head_dim=layer.head_dim, **kind)
            if layer.begin:
                latent_attention(b, q, k, layer.heads, layer.head_dim, layer.begin, layer=i, scale=0.2)
                continue
            heads = (layer.heads, layer.kv_heads)
            out = attention(b, (q, k, v), heads, layer.head_dim, layer=i, scale=0.2)
        return rows_of(b, out, layer.heads * layer.head_dim)

    def store(self, tokens: NDArray[np.int64], table: list[int], position: int = 0) -> None:
        self.runner.run([Chunk(tokens, table, position)], rows=[])

    def move(
        self, source: list[int], destination: list[int], source_begin: int, to: int, num_tokens: int
    ) -> None:
        tables = (np.array(source, np.int32), np.array(destination, np.int32))
        runner = self.runner
        self.program.move_kv(runner.pool, 0, runner.arena, *tables, source_begin, to, num_tokens)

    def blocks(self) -> NDArray[np.uint8]:
        return np.array([self.runner.arena.block(i) for i in range(NUM_BLOCKS)])

    def kept(self, table: list[int], blocks: NDArray[np.uint8] | None = None) -> list[tuple[Floats, Floats]]:
        """(keys, values) [positions of the table, kv_heads * head_dim] of each layer."""
        blocks = self.blocks() if blocks is None else blocks
        kept, start = [], 0
        for layer, shape in zip(LAYERS, self.shapes, strict=True):
            end = start + shape.num_bytes
            keys = np.concatenate([shape.keys(blocks[block, start:end]) for block in table])
            values, start = keys[:, : layer.begin], end
            if not layer.begin:
                start = end + shape.num_bytes
                values = np.concatenate([shape.values(blocks[block, end:start]) for block in table])
            kept.append((keys, values))
        return kept


@pytest.fixture
def tokens() -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(0, VOCABULARY, LENGTH)


def steps(keys: Floats, shape: KvShape) -> Floats:
    """How far apart the numbers are, at these keys, that the type can keep."""
    if shape.kv_type == "f32":
        return np.full_like(keys, 1e-6)
    if shape.kv_type == "f16":
        return np.maximum(np.abs(keys), 0.25) * 2.0**-10
    heads = keys.reshape(len(keys), shape.kv_heads, shape.head_dim)
    largest = np.zeros_like(heads)
    for group in range(shape.groups):
        part = slice(group * GROUP, (group + 1) * GROUP)
        largest[..., part] = np.abs(heads[..., part]).max(-1, keepdims=True)
    return largest.reshape(keys.shape) / (127 if shape.kv_type == "q8_0" else 8)


OTHER = [1, 8, 25, 11, 3, 39]


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize(
    ("begin", "to", "count"),
    [(20, 3, 55), (16, 0, 59), (33, 1, 42), (5, 12, 70), (0, 21, 75), (10, 9, 1), (74, 0, 1), (32, 16, 32)],
)
def test_keys_are_as_if_stored_there(
    tmp_path: Path, isa: str, kv_type: str, begin: int, to: int, count: int, tokens: NDArray[np.int64]
) -> None:
    model = Model(tmp_path, isa, kv_type)
    model.store(tokens, TABLE)
    before = model.blocks()
    model.move(TABLE, OTHER, begin, to, count)
    positions = to + np.arange(count)
    for i, (layer, shape) in enumerate(zip(LAYERS, model.shapes, strict=True)):
        (keys, values), (old_keys, old_values) = (
            (k[a : a + count], v[a : a + count])
            for (k, v), a in ((model.kept(OTHER)[i], to), (model.kept(TABLE, before)[i], begin))
        )
        np.testing.assert_array_equal(values, old_values)
        turned = layer.turned(old_keys, np.full(count, float(to - begin)), scale=1.0)
        step = steps(turned, shape)
        assert (np.abs(keys - turned) <= step * (1.01 if kv_type == "q4_0" else 0.57)).all()
        exact = self_stored(model, i, tokens[begin : begin + count], positions.astype(float))
        step = steps(exact, shape).max(-1, keepdims=True)  # a rotation spreads another dimension's rounding
        assert (np.abs(keys - exact) <= step * (3 if kv_type == "q4_0" else 1.5)).all()
    untouched = np.setdiff1d(np.arange(NUM_BLOCKS), OTHER)
    np.testing.assert_array_equal(model.blocks()[untouched], before[untouched])
    outside = np.setdiff1d(np.arange(len(OTHER) * BLOCK_TOKENS), positions)
    for new, old in zip(model.kept(OTHER), model.kept(OTHER, before), strict=True):
        np.testing.assert_array_equal(new[0][outside], old[0][outside])
        np.testing.assert_array_equal(new[1][outside], old[1][outside])


def self_stored(model: Model, layer: int, tokens: NDArray[np.int64], positions: Floats) -> Floats:
    """The keys before any rounding."""
    keys = model.tables[f"{layer}.k"][tokens].astype(float)
    return LAYERS[layer].turned(keys, positions, LAYERS[layer].scale)


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_moving_by_nothing_copies_bits(
    tmp_path: Path, isa: str, kv_type: str, tokens: NDArray[np.int64]
) -> None:
    model = Model(tmp_path, isa, kv_type)
    model.store(tokens, TABLE)
    model.move(TABLE, OTHER, 0, 0, 64)  # whole blocks
    blocks = model.blocks()
    np.testing.assert_array_equal(blocks[OTHER[:4]], blocks[TABLE[:4]])
    model.move(TABLE, OTHER, 67, 67, 5)  # in the fifth
    for (keys, values), (copied_keys, copied_values) in zip(
        model.kept(TABLE[4:]), model.kept(OTHER[4:5]), strict=True
    ):
        np.testing.assert_array_equal(copied_keys[3:8], keys[3:8])
        np.testing.assert_array_equal(copied_values[3:8], values[3:8])
        assert np.isnan(np.delete(copied_keys, np.s_[3:8], axis=0)).all()
        assert np.isnan(np.delete(copied_values, np.s_[3:8], axis=0)).all()
    model.move(TABLE, TABLE, 3, 3, 60)  # onto themselves
    np.testing.assert_array_equal(model.blocks()[TABLE], blocks[TABLE])


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize(("begin", "to"), [(1, 0), (20, 17), (21, 5), (16, 0), (40, 8), (70, 66)])
def test_down_within_a_table_as_into_another(
    tmp_path: Path, isa: str, kv_type: str, begin: int, to: int, tokens: NDArray[np.int64]
) -> None:
    model = Model(tmp_path, isa, kv_type)
    model.store(tokens, TABLE)
    count = LENGTH - begin
    model.move(TABLE, OTHER, begin, to, count)
    expected = model.kept(OTHER)
    model.move(TABLE, TABLE, begin, to, count)
    moved = slice(to, to + count)
    for (keys, values), (expected_keys, expected_values) in zip(model.kept(TABLE), expected, strict=True):
        np.testing.assert_array_equal(keys[moved], expected_keys[moved])
        np.testing.assert_array_equal(values[moved], expected_values[moved])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), kv_type=st.sampled_from(KV_TYPES))
def test_one_call_is_as_one_for_each_token(
    data: st.DataObject, kv_type: str, models: Callable[[str], tuple[Model, Model]]
) -> None:
    whole, single = models(kv_type)
    begin = data.draw(st.integers(0, LENGTH - 1), "begin")
    count = data.draw(st.integers(0, LENGTH - begin), "count")
    in_place = data.draw(st.booleans(), "in place")
    to = data.draw(st.integers(0, begin if in_place else len(OTHER) * BLOCK_TOKENS - count), "to")
    destination = TABLE if in_place else OTHER
    whole.move(TABLE, destination, begin, to, count)
    for i in range(count):
        single.move(TABLE, destination, begin + i, to + i, 1)
    np.testing.assert_array_equal(whole.blocks(), single.blocks())


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Model, Model]]:
    """Two of the same contents."""
    path = tmp_path_factory.mktemp("models")
    pairs = {kv_type: (Model(path, "auto", kv_type), Model(path, "auto", kv_type)) for kv_type in KV_TYPES}
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, LENGTH)

    def stored(kv_type: str) -> tuple[Model, Model]:
        for model in pairs[kv_type]:
            for block in range(NUM_BLOCKS):
                model.runner.arena.block(block)[:] = 0xFF
            model.store(tokens, TABLE)
        return pairs[kv_type]

    return stored


def test_same_bits_on_any_number_of_threads(tmp_path: Path, tokens: NDArray[np.int64]) -> None:
    """So much that the threads are woken."""
    results = []
    table, other = list(range(20)), list(range(20, 40))
    many = np.resize(tokens, 320)
    for num_threads in (1, 2, 5):
        model = Model(tmp_path, "auto", "f32", num_threads)
        model.store(many, table)
        model.move(table, other, 37, 2, 283)
        results.append(model.blocks())
    assert 283 * model.program.groups[0].block_bytes // BLOCK_TOKENS > 1 << 18
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_attention_goes_on_behind_a_moved_tail(tmp_path: Path, isa: str, tokens: NDArray[np.int64]) -> None:
    """A middle range removed: the next token sees the others where they are now."""
    model = Model(tmp_path, isa, "f32")
    model.store(tokens, TABLE)
    model.move(TABLE, TABLE, 40, 13, 35)
    actual = model.runner.run([Chunk([7], TABLE, 48)])
    left = np.concatenate([tokens[:13], tokens[40:], [7]])
    expected = Model(tmp_path, isa, "f32").runner.run([Chunk(left, TABLE)])[-1:]
    np.testing.assert_allclose(actual, expected, atol=1e-5)


INT32_MAX = 2**31 - 1
IMPOSSIBLE: dict[str, tuple[str, tuple[list[int], list[int], int, int, int]]] = {
    "source too short": (r"source: 6 tokens from position 75", (TABLE, OTHER, 75, 0, 6)),
    "destination too short": (r"destination: 70 tokens from position 27", (TABLE, OTHER, 0, 27, 70)),
    "empty tables": (r"source: 1 tokens from position 0 do not lie within its 0", ([], [], 0, 0, 1)),
    "negative source": (r"source: 5 tokens from position -1", (TABLE, OTHER, -1, 0, 5)),
    "negative destination": (r"destination: 5 tokens from position -1", (TABLE, OTHER, 0, -1, 5)),
    "huge position": (r"source: 5 tokens", (TABLE, OTHER, 2**63 - 1, 0, 5)),
    "huge number": (r"source: \d+ tokens", (TABLE, OTHER, 1, 0, 2**63 - 1)),
    "negative number": (r"number of tokens is negative", (TABLE, OTHER, 0, 0, -1)),
    "negative block": (r"source\[1\] is -1, outside of the 40", ([9, -1], OTHER, 0, 0, 17)),
    "no such block": (r"destination\[2\] is 40, outside", (TABLE, [1, 2, 40], 0, 0, 33)),
    "huge block": (r"destination\[0\] is \d+, outside", (TABLE, [INT32_MAX], 0, 0, 1)),
    "up within a table": (r"block 9 would be written before", (TABLE, TABLE, 0, 1, 10)),
    "up to the next block": (r"block 2 would be written before", (TABLE, TABLE, 0, 16, 17)),
    "blocks in another order": (r"block 2 would be written before", (TABLE, [2, 9], 0, 0, 32)),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_move_refuses(tmp_path: Path, case: str, tokens: NDArray[np.int64]) -> None:
    message, arguments = IMPOSSIBLE[case]
    model = Model(tmp_path, "auto", "f16")
    model.store(tokens, TABLE)
    before = model.blocks()
    with pytest.raises(NativeError, match=message):
        model.move(*arguments)
    np.testing.assert_array_equal(model.blocks(), before)


def test_entries_beyond_the_range_are_not_looked_at(tmp_path: Path, tokens: NDArray[np.int64]) -> None:
    model = Model(tmp_path, "auto", "f16")
    model.store(tokens, TABLE)
    model.move([-1, *TABLE[1:3], 99], [5, 6, -1], 20, 4, 28)
    model.move([], [-1], 0, 16, 0)


def test_another_models_arena_and_a_closed_one(tmp_path: Path) -> None:
    model = Model(tmp_path, "auto", "f16")
    table = np.zeros(1, np.int32)
    with pytest.raises(NativeError, match="group 0: blocks have 64 bytes"):
        model.program.move_kv(model.runner.pool, 0, Arena(4, 64), table, table, 0, 0, 1)
    with pytest.raises(NativeError, match="no group 1"):
        model.program.move_kv(model.runner.pool, 1, model.runner.arena, table, table, 0, 0, 1)
    model.runner.arena.close()
    with pytest.raises(NativeError, match="arena is closed"):
        model.move([0], [1], 0, 0, 1)


def test_arena_may_be_closed_meanwhile(tmp_path: Path, tokens: NDArray[np.int64]) -> None:
    model = Model(tmp_path, "auto", "f16")
    model.store(tokens, TABLE)
    started = threading.Event()

    def close() -> None:
        started.wait()
        model.runner.arena.close()

    closer = threading.Thread(target=close)
    closer.start()

    def move_on() -> None:
        while True:
            model.move(TABLE, OTHER, 0, 1, LENGTH)
            started.set()

    with pytest.raises(NativeError, match="arena is closed"):
        move_on()
    closer.join()


def test_tables_are_int32(tmp_path: Path) -> None:
    model = Model(tmp_path, "auto", "f16")
    wide = np.zeros(1, np.int64)
    with pytest.raises(TypeError):
        model.program.move_kv(model.runner.pool, 0, model.runner.arena, wide, wide, 0, 0, 1)


HALF = np.ones(4, np.float32)


def turn(b: ProgramBuilder, x: int) -> None:
    b.op("Rope", [x], [x], head_dim=8, style="neox", inv_freq=HALF, scale=1.0, begin=0, offset=0)


def scaled(b: ProgramBuilder, x: int) -> int:
    out = b.buffer(32)
    b.op("Scale", [x], [out], factor=2.0)
    return out


def sum_of(b: ProgramBuilder, x: int, y: int) -> int:
    out = b.buffer(32)
    b.op("Add", [x, y], [out])
    return out


def projected(b: ProgramBuilder, x: int, residual: int | None = None) -> int:
    out = b.buffer(32)
    b.op("Linear", [x] if residual is None else [x, residual], [out], ["square", None])
    return out


def attended(b: ProgramBuilder, k: int, v: int, layer: int = 0) -> int:
    return attention(b, (embedded(b, "embed", 32), k, v), (4, 4), 8, layer=layer)


Define = Callable[[ProgramBuilder, int, int], int]  # (builder, k, v) -> result, a buffer of 32
SHIFTABLE: dict[str, Define] = {
    "not rotated": lambda b, k, v: attended(b, k, v),
    "rotated": lambda b, k, v: (turn(b, k), attended(b, k, v))[1],
    "rotated last": lambda b, k, v: (turn(b, y := scaled(b, k)), attended(b, y, v))[1],
    "rotated, written anew": lambda b, k, v: (
        turn(b, k),
        b.op("Embed", [], [k], ["embed"]),
        attended(b, k, v),
    )[2],
    "behind another attention": lambda b, k, v: (
        turn(b, k),
        turn(b, y := projected(b, attended(b, k, v))),
        attended(b, y, v, 1),
    )[2],
}
NOT_SHIFTABLE: dict[str, Define] = {
    "rotated twice": lambda b, k, v: (turn(b, k), turn(b, k), attended(b, k, v))[2],
    "scaled afterwards": lambda b, k, v: (turn(b, k), b.op("Scale", [k], [k], factor=2.0), attended(b, k, v))[
        2
    ],
    "scaled elsewhere": lambda b, k, v: (turn(b, k), attended(b, scaled(b, k), v))[1],
    "added to": lambda b, k, v: (turn(b, k), attended(b, sum_of(b, v, k), v))[1],
    "projected": lambda b, k, v: (turn(b, k), attended(b, projected(b, k), v))[1],
    "a residual": lambda b, k, v: (turn(b, k), attended(b, projected(b, v, k), v))[1],
    "normalised": lambda b, k, v: (
        turn(b, k),
        b.op("RmsNorm", [k], [k], ["norm"], eps=1e-5),
        attended(b, k, v),
    )[2],
    "gated": lambda b, k, v: (turn(b, k), b.op("Glu", [v, k], [k], activation="silu"), attended(b, k, v))[2],
    "values rotated": lambda b, k, v: (turn(b, v), attended(b, k, v))[1],
    "one layer of two": lambda b, k, v: (
        attended(b, k, v),
        turn(b, k),
        attended(b, scaled(b, k), v, 1),
    )[2],
}


@pytest.mark.parametrize("name", [*SHIFTABLE, *NOT_SHIFTABLE])
def test_whether_a_model_can_shift(tmp_path: Path, name: str) -> None:
    tensors = {
        "embed": np.ones((16, 32), np.float32),
        "square": np.eye(32, dtype=np.float32),
        "norm": np.ones(8, np.float32),
    }

    def define(b: ProgramBuilder) -> int:
        k, v = embedded(b, "embed", 32), embedded(b, "embed", 32)
        return rows_of(b, (SHIFTABLE | NOT_SHIFTABLE)[name](b, k, v), 32)

    program = build(write_gguf(tmp_path / "toy.gguf", tensors), "auto", define)
    assert program.can_shift == (name in SHIFTABLE)
    pool, arena = ThreadPool(1), Arena(4, program.groups[0].block_bytes)
    table, other = np.array([0, 1], np.int32), np.array([2, 3], np.int32)
    program.move_kv(pool, 0, arena, table, other, 3, 3, 20)
    if program.can_shift:
        program.move_kv(pool, 0, arena, table, other, 3, 2, 20)
    else:
        with pytest.raises(NativeError, match="cannot be turned"):
            program.move_kv(pool, 0, arena, table, other, 3, 2, 20)
    pool.close()
