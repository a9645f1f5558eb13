"""Whatever a file or a caller gets wrong is an error that names it, before any memory is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from puna._native import Arena, GgufFile, NativeError, Program, ProgramBuilder, ThreadPool
from tests.executor.toy import build, embedded, encoded, rows_of, write_gguf

pytestmark = pytest.mark.native

FREQUENCIES = np.ones(4, np.float32)


@pytest.fixture
def file(tmp_path: Path) -> GgufFile:
    tensors = {
        "embed": np.ones((16, 64), np.float32),
        "square": np.ones((64, 64), np.float32),
        "half": np.ones((32, 64), np.float32),
        "norm": np.ones(64, np.float32),
        "odd": np.ones(48, np.float32),
        "quantized": encoded(np.ones((1, 64), np.float32), "Q8_0"),
        "cube": np.ones((2, 2, 64), np.float32),
    }
    return write_gguf(tmp_path / "validation.gguf", tensors)


@pytest.fixture
def builder(file: GgufFile) -> ProgramBuilder:
    return ProgramBuilder(file)


def attention(b: ProgramBuilder, x: int, out: int | None = None, **changes: object) -> None:
    arguments = {"layer": 0, "num_heads": 8, "num_kv_heads": 8, "head_dim": 8, "scale": 1.0}
    outputs = [b.buffer(64) if out is None else out]
    b.op(
        "Attention",
        [x, x, x],
        outputs,
        **{**arguments, "softcap": 0.0, "window": 0, "alibi": 0.0, "chunk": 0, **changes},
    )


def halved(b: ProgramBuilder, x: int) -> int:
    out = b.buffer(32)
    b.op("Linear", [x], [out], ["half", None])
    return out


Builder, X = ProgramBuilder, int
IMPOSSIBLE: dict[str, tuple[str, Callable[[Builder, X], object]]] = {
    "no such tensor": ("nothing", lambda b, _: b.op("Embed", [], [b.buffer(64)], ["nothing"])),
    "embedding of another width": ("embed", lambda b, _: b.op("Embed", [], [b.buffer(32)], ["embed"])),
    "embedding of three dimensions": ("cube", lambda b, _: b.op("Embed", [], [b.buffer(64)], ["cube"])),
    "norm group does not divide": ("odd", lambda b, x: b.op("RmsNorm", [x], [x], ["odd"], eps=1e-5)),
    "norm without a weight": ("1 tensors, not 0", lambda b, x: b.op("RmsNorm", [x], [x], eps=1e-5)),
    "norm without an epsilon": ("attribute eps", lambda b, x: b.op("RmsNorm", [x], [x], ["norm"])),
    "norm epsilon in words": ("eps", lambda b, x: b.op("RmsNorm", [x], [x], ["norm"], eps="small")),
    "unknown op": ("no op Sqrt", lambda b, x: b.op("Sqrt", [x], [x])),
    "one input of two": ("2 inputs, not 1", lambda b, x: b.op("Add", [x], [x])),
    "norm in a quantized type": (
        "quantized.*Q8_0",
        lambda b, x: b.op("RmsNorm", [x], [x], ["quantized"], eps=1e-5),
    ),
    "norm epsilon": ("eps", lambda b, x: b.op("RmsNorm", [x], [x], ["norm"], eps=float("nan"))),
    "weight rows": (
        r"square.*\[64, 64\].*\[64, 32\]",
        lambda b, x: b.op("Linear", [x], [b.buffer(32)], ["square", None]),
    ),
    "weight columns": (
        r"square.*\[64, 64\].*\[32, 64\]",
        lambda b, x: b.op("Linear", [halved(b, x)], [b.buffer(64)], ["square", None]),
    ),
    "bias of another length": (
        "quantized",
        lambda b, x: b.op("Linear", [x], [b.buffer(64)], ["square", "quantized"]),
    ),
    "outputs without weights": ("2 tensors", lambda b, x: b.op("Linear", [x], [b.buffer(64)], [])),
    "linear over its input": ("over its input", lambda b, x: b.op("Linear", [x], [x], ["square", None])),
    "linear to one output twice": (
        "twice",
        lambda b, x: (lambda y: b.op("Linear", [x], [y, y], ["square", None, "square", None]))(b.buffer(64)),
    ),
    "residual with two weights": (
        "1 inputs, not 2",
        lambda b, x: b.op("Linear", [x, x], [b.buffer(64), b.buffer(64)], ["square", None] * 2),
    ),
    "unwritten input": ("before it is written", lambda b, x: b.op("Scale", [b.buffer(64)], [x], factor=1.0)),
    "unknown buffer": ("no buffer 99", lambda b, x: b.op("Add", [x, 99], [x])),
    "negative buffer": ("no buffer -1", lambda b, x: b.op("Add", [x, x], [-1])),
    "widths differ": ("wide", lambda b, x: b.op("Add", [x, x], [b.buffer(32)])),
    "buffer without width": ("width", lambda b, _: b.buffer(0)),
    "buffer too wide": ("width", lambda b, _: b.buffer(1 << 40)),
    "activation": ("tanh", lambda b, x: b.op("Glu", [x, x], [b.buffer(64)], activation="tanh")),
    "rotation style": (
        "spiral",
        lambda b, x: b.op(
            "Rope", [x], [x], head_dim=8, style="spiral", inv_freq=FREQUENCIES, scale=1.0, begin=0, offset=0
        ),
    ),
    "rotation beyond the head": (
        "frequencies",
        lambda b, x: b.op(
            "Rope", [x], [x], head_dim=4, style="neox", inv_freq=FREQUENCIES, scale=1.0, begin=0, offset=0
        ),
    ),
    "rotation without frequencies": (
        "frequencies",
        lambda b, x: b.op(
            "Rope", [x], [x], head_dim=8, style="neox", inv_freq=FREQUENCIES[:0], scale=1.0, begin=0, offset=0
        ),
    ),
    "rotation by infinity": (
        "finite",
        lambda b, x: b.op(
            "Rope",
            [x],
            [x],
            head_dim=8,
            style="neox",
            inv_freq=FREQUENCIES * np.inf,
            scale=1.0,
            begin=0,
            offset=0,
        ),
    ),
    "rotation of another width": (
        "wide",
        lambda b, x: b.op(
            "Rope", [x], [x], head_dim=9, style="neox", inv_freq=FREQUENCIES, scale=1.0, begin=0, offset=0
        ),
    ),
    "columns beyond the period": (
        "size",
        lambda b, x: b.op("Columns", [x], [b.buffer(32)], begin=10, size=8, period=16),
    ),
    "periods that do not divide": (
        "wide",
        lambda b, x: b.op("Columns", [x], [b.buffer(32)], begin=0, size=8, period=24),
    ),
    "groups that do not divide": ("groups", lambda b, x: b.op("L2Norm", [x], [x], size=24, eps=1e-6)),
    "soft cap of zero": ("soft cap", lambda b, x: b.op("Softcap", [x], [x], cap=0.0)),
    "scale not finite": ("factor", lambda b, x: b.op("Scale", [x], [x], factor=float("inf"))),
    "heads of another width": ("wide", lambda b, x: attention(b, x, num_heads=4, num_kv_heads=4)),
    "heads not divisible": ("shared out", lambda b, x: attention(b, x, num_heads=8, num_kv_heads=3)),
    "no heads": ("heads", lambda b, x: attention(b, x, num_heads=0)),
    "more KV heads than heads": ("num_kv_heads", lambda b, x: attention(b, x, num_heads=4, num_kv_heads=8)),
    "huge heads": ("head_dim", lambda b, x: attention(b, x, head_dim=1 << 30)),
    "negative window": ("window", lambda b, x: attention(b, x, window=-1)),
    "attention over its input": ("over its input", lambda b, x: attention(b, x, out=x)),
    "two attentions of a layer": ("layer 0", lambda b, x: (attention(b, x), attention(b, x))),
    "negative layer": ("layer", lambda b, x: attention(b, x, layer=-1)),
    "rows of rows": ("already", lambda b, x: b.op("Rows", [rows_of(b, x, 64)], [b.buffer(64)])),
    "attention behind rows": ("rows", lambda b, x: attention(b, rows_of(b, x, 64))),
    "tokens and rows added": ("rows", lambda b, x: b.op("Add", [x, rows_of(b, x, 64)], [b.buffer(64)])),
    "one buffer for tokens and rows": ("holds some rows", lambda b, x: b.op("Rows", [x], [x])),
    "result without rows": ("result", lambda b, x: b.build(x)),
    "result unknown": ("no buffer", lambda b, _: b.build(5)),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_builder_refuses(builder: ProgramBuilder, case: str) -> None:
    message, define = IMPOSSIBLE[case]
    x = embedded(builder, "embed", 64)
    with pytest.raises(NativeError, match=message):
        define(builder, x)


def test_unknown_instruction_set(file: GgufFile) -> None:
    with pytest.raises(NativeError, match="sse9"):
        ProgramBuilder(file, "sse9")


def test_builder_is_spent_after_build(builder: ProgramBuilder) -> None:
    result = rows_of(builder, embedded(builder, "embed", 64), 64)
    builder.build(result)
    with pytest.raises(NativeError, match="no buffer"):
        builder.build(result)


def test_program_keeps_the_file(file: GgufFile) -> None:
    program = build(file, "auto", lambda b: rows_of(b, embedded(b, "embed", 64), 64))
    del file
    assert (run_step(program) == 1).all()


def one_attention(file: GgufFile) -> Program:
    def define(b: ProgramBuilder) -> int:
        x, out = embedded(b, "embed", 64), b.buffer(64)
        attention(b, x, out=out)
        return rows_of(b, out, 64)

    return build(file, "auto", define)


def run_step(program: Program, num_blocks: int = 4, **changes: list) -> np.ndarray:
    arrays = {
        "tokens": [1, 2, 3],
        "positions": [16, 17, 0],
        "sequence_starts": [0, 2, 3],
        "block_tables": [[0, 1], [2, -1]],
        "rows": [1, 2],
        **changes,
    }
    tables = np.array(arrays.pop("block_tables"), np.int32)
    arenas = [Arena(num_blocks, group.block_bytes) for group in program.groups]
    converted = {name: np.array(a, np.int32) for name, a in arrays.items()}
    return program.run(ThreadPool(1), arenas, block_tables=[tables] * len(arenas), **converted)[0]


def test_the_valid_step_runs(file: GgufFile) -> None:
    assert run_step(one_attention(file)).shape == (2, 64)


INVALID: dict[str, tuple[str, dict[str, list]]] = {
    "token beyond the vocabulary": (r"tokens\[1\] is 16", {"tokens": [1, 16, 3]}),
    "negative token": (r"tokens\[0\] is -1", {"tokens": [-1, 2, 3]}),
    "fewer positions": ("positions has 2", {"positions": [16, 17]}),
    "gap in positions": ("sequence 0: positions are not contiguous", {"positions": [16, 18, 0]}),
    "negative position": ("sequence 1: position -5", {"positions": [16, 17, -5]}),
    "largest position": ("sequence 1.*2147483647", {"positions": [16, 17, 2147483647]}),
    "starts not at 0": ("sequence_starts", {"sequence_starts": [1, 2, 3]}),
    "starts beyond the tokens": ("sequence_starts", {"sequence_starts": [0, 2, 4]}),
    "starts before the last token": ("sequence_starts", {"sequence_starts": [0, 1, 2]}),
    "starts decrease": (
        "decreases at entry 2",
        {"sequence_starts": [0, 3, 1, 3], "block_tables": [[0, 1]] * 3},
    ),
    "no starts": ("sequence_starts", {"sequence_starts": []}),
    "table missing": ("block_tables has 1 rows for 2", {"block_tables": [[0, 1]]}),
    "table too short": ("sequence 0: position 17 needs 2 blocks", {"block_tables": [[0], [2]]}),
    "block beyond the arena": ("sequence 0: block_tables entry 1 is 4", {"block_tables": [[0, 4], [2, -1]]}),
    "negative block": ("sequence 0: block_tables entry 0 is -1", {"block_tables": [[-1, 1], [2, -1]]}),
    "row beyond the tokens": (r"rows\[1\] is 3", {"rows": [0, 3]}),
    "negative row": (r"rows\[0\] is -1", {"rows": [-1]}),
}


@pytest.mark.parametrize("case", INVALID)
def test_step_is_refused(file: GgufFile, case: str) -> None:
    message, changes = INVALID[case]
    with pytest.raises(NativeError, match=message):
        run_step(one_attention(file), **changes)


def test_arena_of_another_model(file: GgufFile) -> None:
    program = one_attention(file)
    tokens, positions, starts, table, rows = (np.array(a, np.int32) for a in ([1], [0], [0, 1], [[0]], [0]))
    with pytest.raises(NativeError, match="group 0: blocks have 64 bytes"):
        program.run(ThreadPool(1), [Arena(4, 64)], tokens, positions, starts, [table], rows)
    with pytest.raises(NativeError, match="for 0 groups of layers, the model has 1"):
        program.run(ThreadPool(1), [], tokens, positions, starts, [], rows)
    (group,) = program.groups
    assert (group.num_layers, group.block_bytes, group.window) == (1, 2 * 64 * 16 * 2, 0)


@pytest.mark.parametrize("argument", range(5))
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_arrays_of_another_type(file: GgufFile, dtype: type, argument: int) -> None:
    program = one_attention(file)
    arrays = [np.array(a, np.int32) for a in ([1], [0], [0, 1], [[0]], [0])]
    arrays[argument] = arrays[argument].astype(dtype)
    tokens, positions, starts, table, rows = arrays
    arenas = [Arena(4, program.groups[0].block_bytes)]
    with pytest.raises(TypeError):
        program.run(ThreadPool(1), arenas, tokens, positions, starts, [table], rows)
