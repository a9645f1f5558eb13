"""Layers with a state: what their formulas say, with the same bits however their tokens come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from puna._native import GgufFile, NativeError, Program, ProgramBuilder
from tests.executor import reference
from tests.executor.toy import Chunk, Runner, build, embedded, rows_of, write_gguf

pytestmark = pytest.mark.native

VOCABULARY, NUM_BLOCKS = 50, 12
Floats = NDArray[np.float32]
Array = NDArray[np.float64]


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> Floats:
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * scale).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """An op over rows of tables, one for each input, that tokens name."""

    op: str
    inputs: tuple[Floats, ...]
    tensors: tuple[Floats | None, ...]
    attributes: dict[str, int | float | str]
    width: int
    """Of the output."""
    formula: Callable[..., Array]
    """Of the rows and the tensors."""

    def expected(self, tokens: NDArray[np.int64]) -> Array:
        rows = [table[tokens].astype(float) for table in self.inputs]
        return self.formula(*rows, *(None if x is None else x.astype(float) for x in self.tensors))

    def write(self, path: Path) -> GgufFile:
        tables = {f"input{i}": x for i, x in enumerate(self.inputs)}
        tensors = {f"tensor{i}": x for i, x in enumerate(self.tensors) if x is not None}
        return write_gguf(path, {**tables, **tensors})

    def program(self, file: GgufFile, isa: str = "auto") -> Program:
        """Two layers, each over the same inputs; the sum of what they give."""

        def define(b: ProgramBuilder) -> int:
            inputs = [embedded(b, f"input{i}", x.shape[1]) for i, x in enumerate(self.inputs)]
            names = [None if x is None else f"tensor{i}" for i, x in enumerate(self.tensors)]
            outs = [b.buffer(self.width) for _ in range(2)]
            for layer, out in enumerate(outs):
                b.op(self.op, inputs, [out], names, layer=layer, **self.attributes)
            b.op("Add", outs, [outs[0]])
            return rows_of(b, outs[0], self.width)

        return build(file, isa, define)


def short_conv(channels: int, size: int, function: str, has_bias: bool) -> Case:
    return Case(
        "ShortConv",
        (random(VOCABULARY, channels),),
        (random(channels, size), random(channels) if has_bias else None),
        {"function": function},
        channels,
        lambda *arrays: reference.short_conv(*arrays, function),
    )


def gated_delta_net(
    key_heads: int, heads: int, key_dim: int, value_dim: int, *, grouped: bool, decays_rows: bool = False
) -> Case:
    sizes = {"num_key_heads": key_heads, "num_value_heads": heads, "key_dim": key_dim, "value_dim": value_dim}
    q, k = (random(VOCABULARY, key_heads * key_dim, seed=i, scale=key_dim**-0.5) for i in range(2))
    decay = abs(random(VOCABULARY, heads * (key_dim if decays_rows else 1), seed=3))
    beta = abs(random(VOCABULARY, heads, seed=4))
    return Case(
        "GatedDeltaNet",
        (q, k, random(VOCABULARY, heads * value_dim), -decay, beta / 3),
        (),
        {**sizes, "scale": 0.25, "grouped": int(grouped), "decays_rows": int(decays_rows)},
        heads * value_dim,
        lambda *rows: reference.gated_delta_net(*rows, key_dim, 0.25, grouped),
    )


def selective_scan(heads: int, head_dim: int, groups: int, state_dim: int) -> Case:
    b, c = (random(VOCABULARY, groups * state_dim, seed=i) for i in range(2))
    return Case(
        "SelectiveScan",
        (random(VOCABULARY, heads * head_dim), b, c, random(VOCABULARY, heads)),
        (-abs(random(heads, 1)), random(heads, 1, seed=1), random(heads)),
        {"num_heads": heads, "head_dim": head_dim, "num_groups": groups, "state_dim": state_dim},
        heads * head_dim,
        lambda x, b, c, dt, a, d, bias: reference.selective_scan(x, b, c, dt, a[:, 0], d[:, 0], bias, groups),
    )


def channel_scan(channels: int, state_dim: int) -> Case:
    b, c = (random(VOCABULARY, state_dim, seed=i) for i in range(2))
    return Case(
        "ChannelScan",
        (random(VOCABULARY, channels), b, c, random(VOCABULARY, channels, seed=3)),
        (-abs(random(channels, state_dim)), random(channels, seed=1)),
        {"state_dim": state_dim},
        channels,
        reference.channel_scan,
    )


CASES = {
    "conv": short_conv(301, 4, "silu", has_bias=True),
    "conv without a function": short_conv(48, 3, "none", has_bias=False),
    "delta net": gated_delta_net(2, 6, 19, 75, grouped=True),
    "delta net, interleaved": gated_delta_net(3, 6, 32, 16, grouped=False),
    "delta net whose rows decay": gated_delta_net(3, 3, 19, 75, grouped=True, decays_rows=True),
    "scan": selective_scan(4, 40, 2, 21),
    "scan by channels": channel_scan(75, 13),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def file(case: Case, tmp_path: Path) -> GgufFile:
    return case.write(tmp_path / "case.gguf")


def tokens_of(count: int, seed: int = 7) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, VOCABULARY, count)


def states_of(runner: Runner, block: int) -> NDArray[np.uint8]:
    return runner.arena.block(block).copy()


def test_formula(case: Case, file: GgufFile, isa: str) -> None:
    tokens = tokens_of(45)
    actual = Runner(case.program(file, isa), NUM_BLOCKS).run([Chunk(tokens)])
    np.testing.assert_allclose(actual, 2 * case.expected(tokens), rtol=1e-4, atol=2e-5)


def test_group(case: Case, file: GgufFile) -> None:
    (group,) = case.program(file).groups
    assert (group.num_layers, group.is_state) == (2, True)
    assert group.block_bytes % 128 == 0
    assert not case.program(file).can_shift


@dataclass(eq=False)
class Sequence:
    tokens: NDArray[np.int64]
    blocks: tuple[int, int]  # that it may use
    position: int = 0
    block: int = -1  # with its state
    outputs: list[Floats] = field(default_factory=list)

    def chunk(self, length: int, wrong: int, right: int, in_place: bool) -> Chunk:
        """Its next tokens, of which the last `right` are drafts, and so many wrong drafts behind them."""
        after = (
            self.block if in_place and self.block >= 0 else next(b for b in self.blocks if b != self.block)
        )
        tokens = [*self.tokens[self.position : self.position + length], *tokens_of(wrong, seed=1)]
        chunk = Chunk(tokens, (), self.position, state=(self.block, after), num_drafts=right + wrong)
        self.position, self.block = self.position + length, after
        return chunk


def run_in_pieces(runner: Runner, sequences: list[Sequence], data: st.DataObject) -> None:
    """All of their tokens. Some are drafts, of which some are wrong."""
    while waiting := [s for s in sequences if s.position < len(s.tokens)]:
        chunks, lengths, starts = [], [], [0]
        for sequence in waiting:
            length = data.draw(st.integers(1, min(17, len(sequence.tokens) - sequence.position)))
            right, wrong = data.draw(st.integers(0, min(3, length - 1))), data.draw(st.integers(0, 3))
            chunks.append(sequence.chunk(length, wrong, right, data.draw(st.booleans())))
            lengths.append(length)
            starts.append(starts[-1] + right + 1)
        out = runner.run(chunks, num_threads=data.draw(st.integers(1, 3)))
        runner.program.replay(runner.pool, runner.arena, np.array(starts, np.int32))
        begin = 0
        for sequence, chunk, length in zip(waiting, chunks, lengths, strict=True):
            sequence.outputs.append(out[begin : begin + length])
            begin += len(chunk.tokens)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_bits_are_the_same_in_any_batch_with_any_drafts(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = CASES[name]
    program = case.program(case.write(tmp_path_factory.mktemp("case") / "case.gguf"))
    runner = Runner(program, NUM_BLOCKS, num_threads=3)
    all_tokens = [tokens_of(length, seed=length) for length in (40, 23, 5)]
    sequences = [Sequence(tokens, (2 * i, 2 * i + 1)) for i, tokens in enumerate(all_tokens)]
    run_in_pieces(runner, sequences, data)
    for sequence in sequences:
        alone = runner.run([Chunk(sequence.tokens, state=(-1, NUM_BLOCKS - 1))], num_threads=1)
        np.testing.assert_array_equal(np.concatenate(sequence.outputs), alone)
        np.testing.assert_array_equal(states_of(runner, sequence.block), states_of(runner, NUM_BLOCKS - 1))


def test_a_block_that_is_only_read_stays(case: Case, file: GgufFile) -> None:
    runner = Runner(case.program(file), NUM_BLOCKS)
    runner.run([Chunk(tokens_of(9), state=(-1, 3))])
    before = states_of(runner, 3)
    chunks = [Chunk(tokens_of(4, seed=i), position=9, state=(3, 4 + i), num_drafts=i) for i in range(2)]
    outs = runner.run(chunks)  # two that go on from the same state
    runner.program.replay(runner.pool, runner.arena, np.array([0, 1, 3], np.int32))
    np.testing.assert_array_equal(states_of(runner, 3), before)
    np.testing.assert_array_equal(outs[4:], runner.run([chunks[1]]))


IMPOSSIBLE: dict[str, tuple[str, list[Chunk]]] = {
    "nothing to go on with": ("position 3", [Chunk([1], position=3, state=(-1, 0))]),
    "something to begin with": ("position 0", [Chunk([1], state=(1, 0))]),
    "read beyond the blocks": ("block 12 of 12", [Chunk([1], position=3, state=(12, 0))]),
    "write beyond the blocks": ("block 12, to be written", [Chunk([1], state=(-1, 12))]),
    "write nowhere": ("block -1, to be written", [Chunk([1], state=(-1, -1))]),
    "one block for two": (
        "block 2 is written by another",
        [Chunk([1], state=(-1, 2)), Chunk([1], state=(-1, 2))],
    ),
    "another's block": (
        "block 2 is read while another",
        [Chunk([1], position=1, state=(2, 3)), Chunk([1], state=(-1, 2))],
    ),
    "drafts only": ("2 drafts do not fit", [Chunk([1, 2], state=(-1, 0), num_drafts=2)]),
    "a negative number of drafts": ("-1 drafts do not fit", [Chunk([1, 2], state=(-1, 0), num_drafts=-1)]),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_steps_are_refused(name: str, tmp_path: Path) -> None:
    message, chunks = IMPOSSIBLE[name]
    case = CASES["conv"]
    runner = Runner(case.program(case.write(tmp_path / "case.gguf")), NUM_BLOCKS)
    with pytest.raises(NativeError, match=message):
        runner.run(chunks)


def test_a_replay_that_does_not_fit_the_last_run_is_refused(tmp_path: Path) -> None:
    case = CASES["conv"]
    runner = Runner(case.program(case.write(tmp_path / "case.gguf")), NUM_BLOCKS)
    other = Runner(runner.program, NUM_BLOCKS)
    runner.run([Chunk([1, 2, 3], state=(-1, 0), num_drafts=2)])
    for arena, starts in ((runner.arena, [0]), (runner.arena, [0, 4]), (other.arena, [0, 3])):
        with pytest.raises(NativeError):
            runner.program.replay(runner.pool, arena, np.array(starts, np.int32))


def test_states_cannot_be_moved(tmp_path: Path) -> None:
    case = CASES["conv"]
    runner = Runner(case.program(case.write(tmp_path / "case.gguf")), NUM_BLOCKS)
    tables = [np.array([block], np.int32) for block in range(2)]
    with pytest.raises(NativeError, match="states cannot be moved"):
        runner.program.move_kv(runner.pool, 0, runner.arena, *tables, 0, 0, 1)


REFUSED: dict[str, tuple[str, str, dict[str, int | float | str]]] = {
    "heads that cannot be shared out": ("delta net", "key heads", {"num_value_heads": 5}),
    "a head as large as memory": ("delta net", "key_dim", {"key_dim": 1 << 40}),
    "another width": ("delta net", "wide", {"value_dim": 74}),
    "groups that cannot be shared out": ("scan", "groups", {"num_groups": 3}),
    "tensors of another size": ("scan", "wide", {"num_heads": 2}),
    "unknown function": ("conv", "gelu", {"function": "gelu"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_ops_are_refused(name: str, tmp_path: Path) -> None:
    case_name, message, changes = REFUSED[name]
    case = CASES[case_name]
    changed = replace(case, attributes={**case.attributes, **changes})
    with pytest.raises(NativeError, match=message):
        changed.program(changed.write(tmp_path / "case.gguf"))
