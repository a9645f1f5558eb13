"""Layers with windows keep fewer tokens: what lies before a window is neither looked up nor read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puna._native import GgufFile, NativeError, Program, ProgramBuilder
from tests.executor import reference
from tests.executor.attention.kv_types import KV_TYPES
from tests.executor.toy import BLOCK_TOKENS, Chunk, Runner, attention, build, embedded, rows_of, write_gguf

pytestmark = pytest.mark.native

VOCABULARY, HEADS, KV_HEADS, HEAD_DIM = 200, 4, 2, 32
WIDTHS = {"q": HEADS * HEAD_DIM, "k": KV_HEADS * HEAD_DIM, "v": KV_HEADS * HEAD_DIM}
NUM_BLOCKS = 60
POISON = (-1, -(2**31), 2**31 - 1, NUM_BLOCKS)
TABLES = {
    name: np.random.default_rng(i).standard_normal((VOCABULARY, width)).astype(np.float32)
    for i, (name, width) in enumerate(WIDTHS.items())
}
SINKS = np.array([3.0, -50.0, 0.5, 6.0], np.float32)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> GgufFile:
    return write_gguf(tmp_path_factory.mktemp("groups") / "tables.gguf", {**TABLES, "sinks": SINKS})


def layered(
    file: GgufFile,
    windows: list[int],
    *,
    isa: str = "auto",
    kv_type: str = "f16",
    by_window: bool = True,
    sinks: str | None = None,
) -> Program:
    """The sum of what layers with these windows make of the same queries, keys and values."""

    def define(b: ProgramBuilder) -> int:
        q, k, v = (embedded(b, name, width) for name, width in WIDTHS.items())
        kind = {"scale": HEAD_DIM**-0.5, "sinks": sinks}
        outs = [
            attention(b, (q, k, v), (HEADS, KV_HEADS), HEAD_DIM, layer=layer, window=window, **kind)
            for layer, window in enumerate(windows)
        ]
        for out in outs[1:]:
            b.op("Add", [outs[0], out], [outs[0]])
        return rows_of(b, outs[0], WIDTHS["q"])

    if by_window:
        return build(file, isa, define, kv_type)
    builder = ProgramBuilder(file, isa, kv_type)
    return builder.build(define(builder), by_window=False)


def expected(
    tokens: NDArray[np.int64], windows: list[int], sinks: NDArray[np.float32] | None = None
) -> NDArray[np.float64]:
    q, k, v = (TABLES[name][tokens].astype(float) for name in "qkv")
    k, v = (x.astype(np.float16).astype(float) for x in (k, v))
    scale = HEAD_DIM**-0.5
    total = np.zeros((len(tokens), WIDTHS["q"]))
    for window in windows:
        total += reference.attention(q, k, v, HEAD_DIM, scale, window=window, sinks=sinks)
    return total


def test_layers_with_equal_windows_form_a_group(file: GgufFile) -> None:
    layer_bytes = 2 * 2 * BLOCK_TOKENS * WIDTHS["k"]
    groups = layered(file, [24, 0, 70, 24, 0, 0]).groups
    assert [(g.window, g.num_layers, g.block_bytes) for g in groups] == [
        (0, 3, 3 * layer_bytes),
        (70, 1, layer_bytes),
        (24, 2, 2 * layer_bytes),
    ]
    assert [g.window for g in layered(file, [24, 8]).groups] == [24, 8]
    (group,) = layered(file, [24, 0], by_window=False).groups
    assert (group.window, group.num_layers) == (0, 2)


@pytest.mark.parametrize("windows", [[0, 24], [24, 0, 70], [1], [16, 17]])
def test_groups_match_the_reference(file: GgufFile, isa: str, windows: list[int]) -> None:
    tokens = np.random.default_rng(5).integers(0, VOCABULARY, 150)
    runner = Runner(layered(file, windows, isa=isa), NUM_BLOCKS)
    rng = np.random.default_rng(6)
    tables = [rng.permutation(NUM_BLOCKS)[:10].tolist() for _ in windows]
    actual = runner.run([Chunk(tokens, tables=tables)])
    np.testing.assert_allclose(actual, expected(tokens, windows), atol=1e-5)


@dataclass
class Sliding:
    """Sequences whose windowed groups hold only the blocks that the next token sees.

    A block that slid out is filled with NaN, and used again; its entry becomes a number that is no block's.
    """

    runner: Runner
    tokens: list[NDArray[np.int64]]
    positions: list[int] = field(init=False)
    tables: list[list[list[int]]] = field(init=False)
    free: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        groups = range(len(self.runner.program.groups))
        self.positions = [0] * len(self.tokens)
        self.tables = [[[] for _ in groups] for _ in self.tokens]
        self.free = [list(np.random.default_rng(g).permutation(NUM_BLOCKS)) for g in groups]

    def step(self, lengths: list[int], num_threads: int | None = None) -> list[NDArray[np.float32]]:
        """So many tokens more of each sequence."""
        chunks = []
        for s, length in enumerate(lengths):
            begin = self.positions[s]
            self._slide(s, begin)
            self._grow(s, begin + length)
            chunks.append(
                Chunk(self.tokens[s][begin : begin + length], position=begin, tables=self.tables[s])
            )
            self.positions[s] += length
        result = self.runner.run(chunks, num_threads=num_threads)
        return np.split(result, np.cumsum(lengths)[:-1])

    def _grow(self, sequence: int, num_tokens: int) -> None:
        for table, free in zip(self.tables[sequence], self.free, strict=True):
            while len(table) * BLOCK_TOKENS < num_tokens:
                table.append(int(free.pop()))

    def _slide(self, sequence: int, position: int) -> None:
        for g, group in enumerate(self.runner.program.groups):
            seen = max(position - group.window + 1, 0) // BLOCK_TOKENS if group.window else 0
            table = self.tables[sequence][g]
            for i in range(min(seen, len(table))):
                if table[i] not in POISON:
                    self.runner.arenas[g].block(table[i])[:] = 0xFF
                    self.free[g].insert(0, table[i])
                    table[i] = POISON[i % len(POISON)]


@settings(max_examples=25, deadline=None)
@given(
    windows=st.lists(st.sampled_from([0, 0, 1, 15, 16, 17, 40, 64, 300]), min_size=1, max_size=4),
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=3),
    kv_type=st.sampled_from(KV_TYPES),
    num_threads=st.integers(1, 5),
    with_sinks=st.booleans(),
    data=st.data(),
)
def test_any_mix_of_groups_gives_the_bits_of_all_blocks_kept(
    file: GgufFile,
    windows: list[int],
    lengths: list[int],
    kv_type: str,
    num_threads: int,
    with_sinks: bool,
    data: st.DataObject,
) -> None:
    rng = np.random.default_rng(len(lengths))
    tokens = [rng.integers(0, VOCABULARY, n) for n in lengths]
    kind = {"kv_type": kv_type, "sinks": "sinks" if with_sinks else None}
    kept = Runner(layered(file, windows, by_window=False, **kind), NUM_BLOCKS, 1)
    alone = [kept.run([Chunk(t, range(NUM_BLOCKS))]) for t in tokens]
    sliding = Sliding(Runner(layered(file, windows, **kind), NUM_BLOCKS, num_threads), tokens)
    while any(left := [n - p for n, p in zip(lengths, sliding.positions, strict=True)]):
        step = [min(data.draw(st.sampled_from([0, 1, 1, 7, 50, 130])), n) for n in left]
        if not any(step):
            step = left
        starts = list(sliding.positions)
        for s, part in enumerate(sliding.step(step)):
            np.testing.assert_array_equal(part, alone[s][starts[s] : starts[s] + step[s]])


def sharing(file: GgufFile, windows: list[int], *, on_rows: bool) -> Program:
    """The sum of what layers with these windows make of the rows; `on_rows`: of these queries alone."""

    def define(b: ProgramBuilder) -> int:
        q, k, v = (embedded(b, name, width) for name, width in WIDTHS.items())
        outs = []
        for layer, window in enumerate(windows):
            kind: dict = {"layer": layer, "window": window, "scale": HEAD_DIM**-0.5}
            own = attention(b, (q, k, v), (HEADS, KV_HEADS), HEAD_DIM, **kind)
            queries = rows_of(b, q, WIDTHS["q"]) if on_rows else q
            shared = b.buffer(WIDTHS["q"])
            heads = {"num_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": HEAD_DIM}
            b.op("SharedAttention", [queries], [shared], [], softcap=0.0, **heads, **kind)
            outs.append(shared if on_rows else rows_of(b, own, WIDTHS["q"]))
        for out in outs[1:]:
            b.op("Add", [outs[0], out], [outs[0]])
        return outs[0]

    return build(file, "auto", define)


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("windows", [[0, 24], [600]])
def test_rows_that_attend_to_what_a_layer_keeps_give_the_same_bits(
    file: GgufFile, windows: list[int], num_threads: int
) -> None:
    tokens = np.random.default_rng(8).integers(0, VOCABULARY, 700)
    chunks = [
        Chunk(tokens, tables=[range(45)] * len(windows)),
        Chunk(tokens[:9], tables=[[50]] * len(windows)),
    ]
    rows = [3, 4, 5, 250, 698, 699, 700, 701, 708, 2]
    own, shared = (
        Runner(sharing(file, windows, on_rows=on_rows), NUM_BLOCKS).run(
            chunks, rows=rows, num_threads=num_threads
        )
        for on_rows in (False, True)
    )
    np.testing.assert_array_equal(own, shared)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer": 1}, "layer 1 keeps no"),
        ({"window": 8}, "keeps other"),
        ({"num_kv_heads": 4}, "keeps other"),
    ],
)
def test_only_what_is_kept_can_be_read(file: GgufFile, change: dict, message: str) -> None:
    heads = {"num_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": HEAD_DIM}
    kind = heads | {"layer": 0, "window": 0, "scale": 1.0, "softcap": 0.0} | change

    def define(b: ProgramBuilder) -> int:
        q, k, v = (embedded(b, name, width) for name, width in WIDTHS.items())
        attention(b, (q, k, v), (HEADS, KV_HEADS), HEAD_DIM)
        out = b.buffer(WIDTHS["q"])
        b.op("SharedAttention", [q], [out], [], **kind)
        return rows_of(b, out, WIDTHS["q"])

    with pytest.raises(NativeError, match=message):
        build(file, "auto", define)


def chunked(file: GgufFile, isa: str, chunk: int, window: int = 0) -> Program:
    def define(b: ProgramBuilder) -> int:
        q, k, v = (embedded(b, name, width) for name, width in WIDTHS.items())
        kind: dict = {"scale": HEAD_DIM**-0.5, "chunk": chunk, "window": window}
        return rows_of(b, attention(b, (q, k, v), (HEADS, KV_HEADS), HEAD_DIM, **kind), WIDTHS["q"])

    return build(file, isa, define)


@pytest.mark.parametrize("chunk", [16, 64, 320])
def test_a_chunk_is_as_if_nothing_were_before_it(file: GgufFile, isa: str, chunk: int) -> None:
    """Whatever steps its tokens come in, and though blocks before the last `chunk` tokens are gone."""
    tokens = np.random.default_rng(9).integers(0, VOCABULARY, 700)
    whole = Runner(layered(file, [0], isa=isa), NUM_BLOCKS)
    expected = [
        whole.run([Chunk(tokens[begin : begin + chunk], range(NUM_BLOCKS))]) for begin in range(0, 700, chunk)
    ]
    sliding = Sliding(Runner(chunked(file, isa, chunk), NUM_BLOCKS, 3), [tokens])
    actual = [sliding.step([length])[0] for length in (1, 62, 1, 1, 255, 80, 290, 10)]
    np.testing.assert_array_equal(np.concatenate(actual), np.concatenate(expected))


@pytest.mark.parametrize(("chunk", "window", "message"), [(40, 0, "whole blocks"), (32, 8, "and a window")])
def test_chunks_that_cannot_be(file: GgufFile, chunk: int, window: int, message: str) -> None:
    with pytest.raises(NativeError, match=message):
        chunked(file, "auto", chunk, window)


def test_entries_that_a_token_sees_must_be_blocks(file: GgufFile) -> None:
    runner = Runner(layered(file, [0, 40]), NUM_BLOCKS)
    tokens, full = np.arange(100), list(range(7))
    runner.run([Chunk(tokens[:90], full)])
    seen = (90 - 40 + 1) // BLOCK_TOKENS
    poisoned = [-1] * seen + full[seen:]
    runner.run([Chunk(tokens[90:95], position=90, tables=[full, poisoned])])
    poisoned[seen] = NUM_BLOCKS
    with pytest.raises(NativeError, match=f"group 1: sequence 0: block_tables entry {seen} is {NUM_BLOCKS}"):
        runner.run([Chunk(tokens[90:95], position=90, tables=[full, poisoned])])
    with pytest.raises(NativeError, match="group 0: sequence 0: block_tables entry 0 is -1"):
        runner.run([Chunk(tokens[90:95], position=90, tables=[[-1] * 7, full])])


def test_a_move_concerns_one_group(file: GgufFile) -> None:
    runner = Runner(layered(file, [0, 24, 24]), NUM_BLOCKS)
    runner.run([Chunk(np.arange(40), [3, 1, 4])])

    def blocks(group: int) -> NDArray[np.uint8]:
        return np.array([runner.arenas[group].block(i) for i in range(NUM_BLOCKS)])

    before = [blocks(0), blocks(1)]
    source, destination = np.array([3, 1, 4], np.int32), np.array([-1, 8, 9], np.int32)
    runner.program.move_kv(runner.pool, 1, runner.arenas[1], source, destination, 16, 16, 24)
    np.testing.assert_array_equal(blocks(0), before[0])
    np.testing.assert_array_equal(blocks(1)[8], before[1][1])
    whole = runner.run([Chunk(np.arange(40, 45), [3, 1, 4], 40)])
    moved = runner.run([Chunk(np.arange(40, 45), position=40, tables=[[3, 1, 4], [-1, 8, 9]])])
    np.testing.assert_array_equal(moved, whole)


@pytest.mark.parametrize("windows", [[0], [40]])
def test_sinks_take_weight_and_have_no_value(file: GgufFile, isa: str, windows: list[int]) -> None:
    tokens = np.random.default_rng(7).integers(0, VOCABULARY, 300)
    runner = Runner(layered(file, windows, isa=isa, sinks="sinks"), NUM_BLOCKS)
    actual = runner.run([Chunk(tokens, range(20))])
    np.testing.assert_allclose(actual, expected(tokens, windows, SINKS), atol=1e-5)


def test_sinks_count_once_where_threads_share_a_context(file: GgufFile, isa: str) -> None:
    """One token behind a long context: its segments are shared out."""
    program = layered(file, [0], isa=isa, sinks="sinks")
    tokens = np.random.default_rng(8).integers(0, VOCABULARY, 900)
    results = []
    for num_threads in (1, 2, 7):
        runner = Runner(program, NUM_BLOCKS, num_threads)
        whole = runner.run([Chunk(tokens, range(57))])
        results.append(runner.run([Chunk(tokens[899:], range(57), 899)]))
        np.testing.assert_array_equal(results[-1], whole[899:])
        np.testing.assert_array_equal(results[-1], results[0])
    np.testing.assert_allclose(results[0], expected(tokens, [0], SINKS)[899:], atol=1e-5)


def test_sinks_of_another_number_of_heads(tmp_path: Path) -> None:
    few = write_gguf(tmp_path / "few.gguf", {**TABLES, "sinks": SINKS[:3]})
    with pytest.raises(NativeError, match=r"sinks has shape \[3, 1\] where the model needs \[4, 1\]"):
        layered(few, [0], sinks="sinks")
