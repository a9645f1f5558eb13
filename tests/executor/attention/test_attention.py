"""Attention over scattered blocks equals dense attention over the sequence's whole history.

K and V live in whatever blocks the tables name; the blocks hold NaN until they are written, so
that any use of a slot beyond a sequence's end shows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from puna._native import ProgramBuilder
from tests.executor import reference
from tests.executor.attention.kv_types import KV_TYPES, QUANTIZED, grouped, query, rounded, stored
from tests.executor.toy import BLOCK_TOKENS, Chunk, Runner, attention, build, embedded, rows_of, write_gguf

pytestmark = pytest.mark.native

VOCABULARY = 300
NUM_BLOCKS = 80


class Attention:
    """A program that is one attention over q, k and v looked up by token."""

    def __init__(
        self,
        path: Path,
        isa: str,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scale: float = 0.3,
        softcap: float = 0.0,
        window: int = 0,
        alibi: float = 0.0,
        kv_type: str = "f16",
        num_threads: int = 2,
    ) -> None:
        rng = np.random.default_rng([heads, kv_heads, head_dim])
        widths = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
        self.tables = {
            name: rng.standard_normal((VOCABULARY, width)).astype(np.float32)
            for name, width in widths.items()
        }
        self.head_dim, self.scale, self.softcap, self.window = head_dim, scale, softcap, window
        self.kv_type, self.alibi = kv_type, alibi
        kind = {"softcap": softcap, "window": window, "alibi": alibi}

        def define(b: ProgramBuilder) -> int:
            q, k, v = (embedded(b, name, width) for name, width in widths.items())
            out = attention(b, (q, k, v), (heads, kv_heads), head_dim, scale=scale, **kind)
            return rows_of(b, out, widths["q"])

        program = build(write_gguf(path / "attention.gguf", self.tables), isa, define, kv_type)
        self.runner = Runner(program, num_blocks=NUM_BLOCKS, num_threads=num_threads)

    def expected(self, tokens: NDArray[np.int64], num_queries: int) -> NDArray[np.float64]:
        q = query(self.tables["q"][tokens[len(tokens) - num_queries :]], self.head_dim, self.kv_type)
        k, v = (stored(self.tables[name][tokens], self.head_dim, self.kv_type) for name in "kv")
        return reference.attention(
            q, k, v, self.head_dim, self.scale, self.softcap, self.window, alibi=self.alibi
        )


def scattered_blocks(rng: np.random.Generator, *lengths: int) -> list[list[int]]:
    """Different blocks of the arena, in no order, for sequences of these lengths."""
    free = list(rng.permutation(NUM_BLOCKS))
    return [[int(free.pop()) for _ in range(-(-n // BLOCK_TOKENS))] for n in lengths]


SHAPES = [(9, 3, 64), (8, 1, 48), (4, 4, 16), (2, 1, 80), (6, 2, 7), (70, 1, 8), (3, 3, 1), (2, 2, 256)]


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SHAPES)
def test_whole_prompt(
    tmp_path: Path, isa: str, heads: int, kv_heads: int, head_dim: int, kv_type: str
) -> None:
    model = Attention(tmp_path, isa, heads, kv_heads, head_dim, scale=head_dim**-0.5, kv_type=kv_type)
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, VOCABULARY, 150)
    (blocks,) = scattered_blocks(rng, 150)
    actual = model.runner.run([Chunk(tokens, blocks)])
    np.testing.assert_allclose(actual, model.expected(tokens, 150), atol=1e-5)


@pytest.mark.parametrize("window", [1, 5, 16, 64, 70, 1000])
@pytest.mark.parametrize("softcap", [0.0, 4.0])
def test_window_and_softcap(tmp_path: Path, isa: str, window: int, softcap: float) -> None:
    model = Attention(tmp_path, isa, 6, 2, 32, softcap=softcap, window=window)
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, VOCABULARY, 200)
    (blocks,) = scattered_blocks(rng, 200)
    actual = model.runner.run([Chunk(tokens, blocks)])
    np.testing.assert_allclose(actual, model.expected(tokens, 200), atol=1e-5)


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 8), (6, 1), (12, 4)])
@pytest.mark.parametrize("kind", [{}, {"softcap": 4.0, "window": 70}], ids=["plain", "capped"])
def test_scores_fall_with_distance(
    tmp_path: Path, isa: str, heads: int, kv_heads: int, kv_type: str, kind: dict[str, Any]
) -> None:
    """As far as distances go that are longer than a segment, in chunks as in one."""
    model = Attention(tmp_path, isa, heads, kv_heads, 32, alibi=8.0, kv_type=kv_type, **kind)
    rng = np.random.default_rng(7)
    tokens = rng.integers(0, VOCABULARY, 400)
    (blocks,) = scattered_blocks(rng, 400)
    whole = model.runner.run([Chunk(tokens, blocks)])
    np.testing.assert_allclose(whole, model.expected(tokens, 400), atol=2e-5)
    model.runner.run([Chunk(tokens[:301], blocks)])
    np.testing.assert_array_equal(model.runner.run([Chunk(tokens[301:], blocks, 301)]), whole[301:])


def test_several_sequences_in_one_step(tmp_path: Path, isa: str) -> None:
    """A long one decoding, one in the middle of its prompt, one starting, one without new tokens."""
    model = Attention(tmp_path, isa, 9, 3, 64, scale=0.125)
    rng = np.random.default_rng(2)
    lengths, news = [260, 100, 33, 16], [1, 37, 33, 0]
    sequences = [rng.integers(0, VOCABULARY, n) for n in lengths]
    tables = scattered_blocks(rng, *lengths)
    olds = [n - new for n, new in zip(lengths, news, strict=True)]
    model.runner.run([Chunk(s[:old], t) for s, old, t in zip(sequences, olds, tables, strict=True)])
    actual = model.runner.run(
        [Chunk(s[old:], t, old) for s, old, t in zip(sequences, olds, tables, strict=True)]
    )
    expected = np.concatenate([model.expected(s, new) for s, new in zip(sequences, news, strict=True) if new])
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_blocks_before_the_window_are_not_read(tmp_path: Path, isa: str, kv_type: str) -> None:
    model = Attention(tmp_path, isa, 6, 2, 32, window=40, kv_type=kv_type)
    rng = np.random.default_rng(4)
    tokens = rng.integers(0, VOCABULARY, 600)
    (blocks,) = scattered_blocks(rng, 600)
    model.runner.run([Chunk(tokens[:590], blocks)])
    for block in blocks[: (590 + 1 - 40) // BLOCK_TOKENS]:
        model.runner.arena.block(block)[:] = 0xFF  # NaN
    actual = model.runner.run([Chunk(tokens[590:], blocks, 590)])
    np.testing.assert_allclose(actual, model.expected(tokens, 10), atol=1e-5)


def test_sums_of_long_contexts_are_bounded_and_change_no_bit(tmp_path: Path) -> None:
    """Twelve threads would like to keep more of them than there may be: 128 MiB."""
    length, num_queries = 1 << 17, 256
    tokens = np.random.default_rng(6).integers(0, VOCABULARY, 1024 + num_queries)
    results = []
    for num_threads in (1, 12):
        model = Attention(tmp_path, "auto", 8, 2, 16, num_threads=num_threads)
        start, blocks = list(range(64)), list(range(64, 80))
        model.runner.run([Chunk(tokens[:1024], start)])
        table = start * (length // 1024 - 1) + start[:48] + blocks  # the same KV, over and over
        results.append(model.runner.run([Chunk(tokens[1024:], table, length - num_queries)]))
        program = model.runner.program
        most = program.most_scratch_bytes(length, num_threads)
        assert most == (0 if num_threads == 1 else 64 << 20)
        assert program.buffer_bytes <= most + (8 << 20)
    np.testing.assert_array_equal(*results)
    assert program.buffer_bytes > 50 << 20


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("window", [0, 40, 300])
def test_same_bits_alone_batched_and_in_chunks(tmp_path: Path, isa: str, window: int, kv_type: str) -> None:
    """Over the borders of segments (256 positions), too, and whatever the threads share out."""
    lengths = (600, 75)
    models = [
        Attention(tmp_path, isa, 9, 3, 40, scale=0.125, window=window, kv_type=kv_type, num_threads=n)
        for n in (1, 2, 7)
    ]
    rng = np.random.default_rng(3)
    sequences = [rng.integers(0, VOCABULARY, n) for n in lengths]
    tables = scattered_blocks(rng, *lengths)
    chunks = [Chunk(s, t) for s, t in zip(sequences, tables, strict=True)]
    together = models[0].runner.run(chunks)
    np.testing.assert_allclose(together[:600], models[0].expected(sequences[0], 600), atol=2e-5)
    for model in models[1:]:
        assert_same_bits(model.runner.run(chunks), together)
    for model in (models[0], models[2]):
        one_by_one = [
            model.runner.run([Chunk(s[i : i + 1], t, i)])
            for s, t in zip(sequences, tables, strict=True)
            for i in range(len(s))
        ]
        assert_same_bits(np.concatenate(one_by_one), together)
    pieces = [
        models[1].runner.run([Chunk(sequences[0][a:b], tables[0], a)])
        for a, b in [(0, 7), (7, 64), (64, 257), (257, 512), (512, 600)]
    ]
    assert_same_bits(np.concatenate(pieces), together[:600])


def assert_same_bits(actual: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    np.testing.assert_array_equal(actual.view(np.int32), expected.view(np.int32))


def test_layout_of_a_block(tmp_path: Path, isa: str) -> None:
    """Per KV head K is [head_dim][16 tokens] and V [16 tokens][head_dim]; V follows the K of all heads."""
    model = Attention(tmp_path, isa, 2, 2, 20)
    model.runner.run([Chunk(range(16), [3])])
    k, v = model.runner.arena.block(3).view(np.float16).reshape(2, 2, 16 * 20)
    tables = {name: model.tables[name][:16].astype(np.float16).reshape(16, 2, 20) for name in "kv"}
    np.testing.assert_array_equal(k.reshape(2, 20, 16), tables["k"].transpose(1, 2, 0))
    np.testing.assert_array_equal(v.reshape(2, 16, 20), tables["v"].transpose(1, 0, 2))


@pytest.mark.parametrize("kv_type", QUANTIZED)
def test_layout_of_a_quantized_block(tmp_path: Path, isa: str, kv_type: str) -> None:
    """As native/kv/layout.h says; a head of 40 values has a second group of 8 and zeros."""
    heads, head_dim, groups = 2, 40, 2
    model = Attention(tmp_path, isa, heads, heads, head_dim, kv_type=kv_type)
    model.runner.run([Chunk(range(16), [3])])
    size = 32 if kv_type == "q8_0" else 16  # bytes of a group of a token
    block = model.runner.arena.block(3)[: 2 * heads * groups * 16 * (size + 2)].reshape(2, -1)
    quants = block[:, : heads * groups * 16 * size]
    scales = block[:, heads * groups * 16 * size :].copy().view(np.float16).reshape(2, heads, groups, 16)
    k = quants[0].reshape(heads, groups, size // 4, 16, 4).transpose(3, 0, 1, 2, 4)
    v = quants[1].reshape(heads, 16, groups, size).transpose(1, 0, 2, 3)
    for actual, name, scale in ((k, "k", scales[0]), (v, "v", scales[1])):
        integers, expected_scale = rounded(grouped(model.tables[name][:16], head_dim), kv_type)
        np.testing.assert_array_equal(scale.transpose(2, 0, 1), expected_scale[..., 0].astype(np.float16))
        values = actual.reshape(16, heads, groups, size)
        if kv_type == "q4_0":
            values = np.concatenate([values & 15, values >> 4], axis=-1).astype(int) - 8
        else:
            values = values.astype(int) - 128 if name == "k" else values.view(np.int8)
        np.testing.assert_array_equal(values, integers)


@pytest.mark.parametrize("kv_type", QUANTIZED)
def test_infinite_keys_and_values_stay_finite(tmp_path: Path, isa: str, kv_type: str) -> None:
    tables = {name: np.full((2, 16), np.inf if name != "q" else 1.0, np.float32) for name in "qkv"}

    def define(b: ProgramBuilder) -> int:
        q, k, v = (embedded(b, name, 16) for name in "qkv")
        out = attention(b, (q, k, v), (1, 1), 16)
        return rows_of(b, out, 16)

    model = Runner(build(write_gguf(tmp_path / "large.gguf", tables), isa, define, kv_type))
    assert np.isfinite(model.run([Chunk([0, 1], [0])])).all()


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_what_is_not_a_number_stays_in_its_sequence(tmp_path: Path, isa: str, kv_type: str) -> None:
    tables = {name: np.random.default_rng(i).standard_normal((5, 32)) for i, name in enumerate("qkv")}
    for table in tables.values():
        table[2:] = [[np.nan], [np.inf], [-np.nan]]

    def define(b: ProgramBuilder) -> int:
        q, k, v = (embedded(b, name, 32) for name in "qkv")
        out = attention(b, (q, k, v), (1, 1), 32)
        return rows_of(b, out, 32)

    file = write_gguf(tmp_path / "odd.gguf", {name: t.astype(np.float32) for name, t in tables.items()})
    model = Runner(build(file, isa, define, kv_type))
    alone = model.run([Chunk([0, 1], [0])])
    beside = model.run([Chunk([0, 1], [0]), Chunk([2, 3, 4, 0], [1])])
    np.testing.assert_array_equal(beside[:2], alone)
    assert np.isfinite(alone).all()


def test_values_beyond_half_precision_stay_finite(tmp_path: Path, isa: str) -> None:
    model = Attention(tmp_path, isa, 1, 1, 16)
    table = {name: np.full((2, 16), 1e6 if name == "v" else 0.0, np.float32) for name in "qkv"}

    def define(b: ProgramBuilder) -> int:
        q, k, v = (embedded(b, name, 16) for name in "qkv")
        out = attention(b, (q, k, v), (1, 1), 16)
        return rows_of(b, out, 16)

    model = Runner(build(write_gguf(tmp_path / "large.gguf", table), isa, define))
    np.testing.assert_allclose(model.run([Chunk([0, 1], [0])]), 65504.0)
