"""Attention over scattered blocks equals dense attention over the sequence's whole history.

K and V live as half floats in whatever blocks the tables name; the blocks hold NaN until they are written, so
that any use of a slot beyond a sequence's end shows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna._native import ProgramBuilder
from tests.executor import reference
from tests.executor.toy import BLOCK_TOKENS, Chunk, Runner, build, embedded, rows_of, write_gguf

pytestmark = pytest.mark.native

VOCABULARY = 300


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
    ) -> None:
        rng = np.random.default_rng([heads, kv_heads, head_dim])
        widths = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
        self.tables = {
            name: rng.standard_normal((VOCABULARY, width)).astype(np.float32)
            for name, width in widths.items()
        }
        self.head_dim, self.scale, self.softcap, self.window = head_dim, scale, softcap, window

        def define(b: ProgramBuilder) -> int:
            q, k, v = (embedded(b, name, width) for name, width in widths.items())
            out = b.buffer(widths["q"])
            b.attention(out, q, k, v, 0, heads, kv_heads, head_dim, scale, softcap, window)
            return rows_of(b, out, widths["q"])

        self.runner = Runner(
            build(write_gguf(path / "attention.gguf", self.tables), isa, define), num_blocks=64
        )

    def expected(self, tokens: NDArray[np.int64], num_queries: int) -> NDArray[np.float64]:
        q = self.tables["q"][tokens[len(tokens) - num_queries :]].astype(float)
        k, v = (self.tables[name][tokens].astype(np.float16).astype(float) for name in "kv")
        return reference.attention(q, k, v, self.head_dim, self.scale, self.softcap, self.window)


def scattered_blocks(rng: np.random.Generator, *lengths: int) -> list[list[int]]:
    """Different blocks of the arena, in no order, for sequences of these lengths."""
    free = list(rng.permutation(64))
    return [[int(free.pop()) for _ in range(-(-n // BLOCK_TOKENS))] for n in lengths]


SHAPES = [(9, 3, 64), (8, 1, 48), (4, 4, 16), (2, 1, 80), (6, 2, 7), (70, 1, 8), (3, 3, 1), (2, 2, 256)]


@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SHAPES)
def test_whole_prompt(tmp_path: Path, isa: str, heads: int, kv_heads: int, head_dim: int) -> None:
    model = Attention(tmp_path, isa, heads, kv_heads, head_dim, scale=head_dim**-0.5)
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


@pytest.mark.parametrize("window", [0, 40])
def test_same_bits_alone_batched_and_in_chunks(tmp_path: Path, isa: str, window: int) -> None:
    model = Attention(tmp_path, isa, 9, 3, 64, scale=0.125, window=window)
    rng = np.random.default_rng(3)
    sequences = [rng.integers(0, VOCABULARY, n) for n in (190, 75)]
    tables = scattered_blocks(rng, 190, 75)
    together = model.runner.run([Chunk(s, t) for s, t in zip(sequences, tables, strict=True)])
    one_by_one = [
        model.runner.run([Chunk(s[i : i + 1], t, i)])
        for s, t in zip(sequences, tables, strict=True)
        for i in range(len(s))
    ]
    np.testing.assert_array_equal(np.concatenate(one_by_one), together)
    pieces = [
        model.runner.run([Chunk(sequences[0][a:b], tables[0], a)])
        for a, b in [(0, 7), (7, 64), (64, 129), (129, 190)]
    ]
    np.testing.assert_array_equal(np.concatenate(pieces), together[:190])


def test_layout_of_a_block(tmp_path: Path, isa: str) -> None:
    """Per KV head K is [head_dim][16 tokens] and V [16 tokens][head_dim]; V follows the K of all heads."""
    model = Attention(tmp_path, isa, 2, 2, 20)
    model.runner.run([Chunk(range(16), [3])])
    k, v = model.runner.arena.block(3).view(np.float16).reshape(2, 2, 16 * 20)
    tables = {name: model.tables[name][:16].astype(np.float16).reshape(16, 2, 20) for name in "kv"}
    np.testing.assert_array_equal(k.reshape(2, 20, 16), tables["k"].transpose(1, 2, 0))
    np.testing.assert_array_equal(v.reshape(2, 16, 20), tables["v"].transpose(1, 0, 2))


def test_values_beyond_half_precision_stay_finite(tmp_path: Path, isa: str) -> None:
    model = Attention(tmp_path, isa, 1, 1, 16)
    table = {name: np.full((2, 16), 1e6 if name == "v" else 0.0, np.float32) for name in "qkv"}

    def define(b: ProgramBuilder) -> int:
        q, k, v = (embedded(b, name, 16) for name in "qkv")
        out = b.buffer(16)
        b.attention(out, q, k, v, 0, 1, 1, 16, 1.0, 0.0, 0)
        return rows_of(b, out, 16)

    model = Runner(build(write_gguf(tmp_path / "large.gguf", table), isa, define))
    np.testing.assert_allclose(model.run([Chunk([0, 1], [0])]), 65504.0)
