"""Attention whose values are columns of the keys; blocks hold NaN until they are written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from puna._native import NativeError, ProgramBuilder
from tests.executor import reference
from tests.executor.attention.kv_types import KV_TYPES, query, stored
from tests.executor.toy import (
    BLOCK_TOKENS,
    Chunk,
    Runner,
    build,
    embedded,
    latent_attention,
    rows_of,
    write_gguf,
)

pytestmark = pytest.mark.native

VOCABULARY, NUM_BLOCKS = 300, 80
SHAPES = [(16, 576, 512), (5, 80, 64), (70, 47, 32), (1, 32, 32)]  # heads, dimensions of keys, of values


class Latents:
    """A program that is one attention over q and k looked up by token."""

    def __init__(
        self, path: Path, isa: str, shape: tuple[int, int, int], kv_type: str = "f16", num_threads: int = 2
    ) -> None:
        self.heads, self.head_dim, self.value_dim = shape
        self.kv_type, self.scale = kv_type, self.head_dim**-0.5
        rng = np.random.default_rng(shape)
        widths = {"q": self.heads * self.head_dim, "k": self.head_dim}
        self.tables = {
            name: rng.standard_normal((VOCABULARY, width)).astype(np.float32)
            for name, width in widths.items()
        }

        def define(b: ProgramBuilder) -> int:
            q, k = (embedded(b, name, width) for name, width in widths.items())
            return rows_of(b, latent_attention(b, q, k, *shape, layer=0, scale=self.scale), self.out_width)

        program = build(write_gguf(path / "latents.gguf", self.tables), isa, define, kv_type)
        self.runner = Runner(program, NUM_BLOCKS, num_threads)

    @property
    def out_width(self) -> int:
        return self.heads * self.value_dim

    def expected(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        q = query(self.tables["q"][tokens], self.head_dim, self.kv_type)
        k = stored(self.tables["k"][tokens], self.head_dim, self.kv_type)
        return reference.attention(q, k, k[:, : self.value_dim], self.head_dim, self.scale)


def blocks_for(*lengths: int) -> list[list[int]]:
    """Different blocks, in no order."""
    free = np.random.default_rng(0).permutation(NUM_BLOCKS).tolist()
    return [[free.pop() for _ in range(-(-n // BLOCK_TOKENS))] for n in lengths]


@pytest.mark.parametrize("kv_type", KV_TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_whole_prompt(tmp_path: Path, isa: str, shape: tuple[int, int, int], kv_type: str) -> None:
    model = Latents(tmp_path, isa, shape, kv_type)
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, 90)
    actual = model.runner.run([Chunk(tokens, *blocks_for(90))])
    np.testing.assert_allclose(actual, model.expected(tokens), atol=1e-5)


@pytest.mark.parametrize("kv_type", KV_TYPES)
def test_same_bits_alone_batched_and_in_chunks(tmp_path: Path, isa: str, kv_type: str) -> None:
    """Over the borders of segments (256 positions), too, and whatever the threads share out."""
    models = [Latents(tmp_path, isa, (9, 80, 64), kv_type, n) for n in (1, 2, 7)]
    rng = np.random.default_rng(3)
    sequences = [rng.integers(0, VOCABULARY, n) for n in (300, 40)]
    tables = blocks_for(300, 40)
    chunks = [Chunk(s, t) for s, t in zip(sequences, tables, strict=True)]
    together = models[0].runner.run(chunks)
    np.testing.assert_allclose(together[:300], models[0].expected(sequences[0]), atol=2e-5)
    for model in models[1:]:
        assert_same_bits(model.runner.run(chunks), together)
    one_by_one = [
        models[2].runner.run([Chunk(s[i : i + 1], t, i)])
        for s, t in zip(sequences, tables, strict=True)
        for i in range(len(s))
    ]
    assert_same_bits(np.concatenate(one_by_one), together)
    pieces = [
        models[1].runner.run([Chunk(sequences[0][a:b], tables[0], a)])
        for a, b in [(0, 7), (7, 64), (64, 257), (257, 300)]
    ]
    assert_same_bits(np.concatenate(pieces), together[:300])


def assert_same_bits(actual: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    np.testing.assert_array_equal(actual.view(np.int32), expected.view(np.int32))


def test_a_block_holds_the_keys_alone(tmp_path: Path, isa: str) -> None:
    model = Latents(tmp_path, isa, (2, 48, 32))
    model.runner.run([Chunk(range(16), [3])])
    block = model.runner.arena.block(3).view(np.float16)
    np.testing.assert_array_equal(block.reshape(48, 16), model.tables["k"][:16].astype(np.float16).T)


@pytest.mark.parametrize(
    ("shape", "text"),
    [((2, 48, 40), "no multiple of 32"), ((2, 48, 64), "value_dim"), ((2, 1024, 544), "value_dim")],
)
def test_impossible_shapes(tmp_path: Path, shape: tuple[int, int, int], text: str) -> None:
    with pytest.raises(NativeError, match=text):
        Latents(tmp_path, "auto", shape)
