"""Tokens of a text attend to all of it, whatever else is in the step, and pool to one row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from puna._native import NativeError, Program, ProgramBuilder
from tests.executor.toy import Chunk, Runner, build, embedded, rows_of, write_gguf

pytestmark = pytest.mark.native

HEADS, KV_HEADS, HEAD_DIM = 6, 3, 20
LENGTHS = (1, 17, 300, 65)
TOKENS = sum(LENGTHS)
RNG = np.random.default_rng(5)
Q, K, V = (
    RNG.standard_normal((TOKENS, heads * HEAD_DIM)).astype(np.float32)
    for heads in (HEADS, KV_HEADS, KV_HEADS)
)
BUCKETS = RNG.standard_normal((16, HEADS)).astype(np.float32)


def attend_op(tmp_path: Path, isa: str, **attributes: Any) -> Program:
    tables = {"q": Q, "k": K, "v": V}
    buckets = attributes.pop("buckets", None)

    def define(b: ProgramBuilder) -> int:
        inputs = [embedded(b, name, x.shape[1]) for name, x in tables.items()]
        out = b.buffer(Q.shape[1])
        fields = {"num_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "scale": 0.3}
        fields |= {"window": 0, "alibi": 0.0} | attributes
        b.op("EncoderAttention", inputs, [out], [] if buckets is None else ["buckets"], **fields)
        return rows_of(b, out, Q.shape[1])

    return build(write_gguf(tmp_path / "op.gguf", tables | {"buckets": BUCKETS}), isa, define)


def bucket(distance: int) -> int:
    first, away = (8 if distance > 0 else 0), abs(distance)
    if away < 4:
        return first + away
    return first + min(4 + int(np.log(np.float32(away / 4)) / np.log(32.0) * 4), 7)


def expected(
    text: slice, *, window: int = 0, alibi: float = 0.0, buckets: bool = False
) -> NDArray[np.float64]:
    n = text.stop - text.start
    q, k, v = (x[text].astype(float).reshape(n, -1, HEAD_DIM).transpose(1, 0, 2) for x in (Q, K, V))
    k, v = (np.repeat(x, HEADS // KV_HEADS, axis=0) for x in (k, v))
    scores = 0.3 * q @ k.transpose(0, 2, 1)
    distance = np.arange(n)[None, :] - np.arange(n)[:, None]
    slopes = [
        2.0 ** -(alibi / 4 * (h + 1)) if h < 4 else 2.0 ** -(alibi / 8 * (2 * (h - 4) + 1)) for h in range(6)
    ]
    if alibi:
        scores -= np.array(slopes)[:, None, None] * np.abs(distance)
    if buckets:
        of = np.array([[bucket(int(d)) for d in row] for row in np.clip(distance, -128, 128)])
        scores += BUCKETS[of].transpose(2, 0, 1)
    if window:
        scores[:, np.abs(distance) > window // 2] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out: NDArray[np.float64] = weights / weights.sum(-1, keepdims=True) @ v
    return out.transpose(1, 0, 2).reshape(n, -1)


@pytest.mark.parametrize(
    "attributes", [{}, {"window": 30}, {"window": 7}, {"alibi": 8.0}, {"buckets": True}], ids=str
)
def test_texts_side_by_side(tmp_path: Path, isa: str, attributes: dict[str, Any]) -> None:
    program = attend_op(tmp_path, isa, **attributes)
    ends = np.cumsum(LENGTHS)
    texts = [slice(int(end) - n, int(end)) for n, end in zip(LENGTHS, ends, strict=True)]
    chunks = [Chunk(range(text.start, text.stop)) for text in texts]
    alone = [Runner(program, num_threads=1).run([chunk]) for chunk in chunks]
    for threads, order in ((1, [0, 1, 2, 3]), (2, [3, 2, 0, 1])):
        together = Runner(program, num_threads=threads).run([chunks[i] for i in order])
        assert together.tobytes() == np.concatenate([alone[i] for i in order]).tobytes()
    for text, found in zip(texts, alone, strict=True):
        np.testing.assert_allclose(found, expected(text, **attributes), atol=2e-5, rtol=1e-4)


def test_a_text_is_whole(tmp_path: Path) -> None:
    with pytest.raises(NativeError, match="begins in the midst of its text"):
        Runner(attend_op(tmp_path, "auto")).run([Chunk(range(5), position=3)])
