"""A two-layer decoder with all that matters for numerics: norms, grouped heads, rotation, window, GLU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from puna._native import Program, ProgramBuilder
from tests.executor import reference
from tests.executor.toy import Encoded, attention, build, decoded, embedded, encoded, rows_of, write_gguf

VOCABULARY, WIDTH, HEADS, KV_HEADS, HEAD_DIM, FFN = 90, 96, 6, 2, 32, 160
LAYERS, EPS, SCALE, CAP = 2, 1e-5, HEAD_DIM**-0.5, 20.0
WINDOWS = [0, 24]
INV_FREQ = (1000.0 ** -(np.arange(HEAD_DIM // 2) / (HEAD_DIM // 2))).astype(np.float32)

Tensors = dict[str, NDArray[np.float32] | Encoded]


def random_tensors(type_name: str) -> Tensors:
    """Matrices in the given type, norms and biases in F32."""
    rng = np.random.default_rng(7)
    tensors: Tensors = {
        "embed": encoded(rng.standard_normal((VOCABULARY, WIDTH)).astype(np.float32), type_name)
    }
    for layer in range(LAYERS):
        shapes = {
            "q": (HEADS * HEAD_DIM, WIDTH),
            "k": (KV_HEADS * HEAD_DIM, WIDTH),
            "v": (KV_HEADS * HEAD_DIM, WIDTH),
            "o": (WIDTH, HEADS * HEAD_DIM),
            "gate": (FFN, WIDTH),
            "up": (FFN, WIDTH),
            "down": (WIDTH, FFN),
        }
        for name, shape in shapes.items():
            values = (rng.standard_normal(shape) / np.sqrt(shape[1])).astype(np.float32)
            tensors[f"{layer}.{name}"] = encoded(values, type_name)
        for name, size in {
            "norm1": WIDTH,
            "norm2": WIDTH,
            "q_norm": HEAD_DIM,
            "k_bias": KV_HEADS * HEAD_DIM,
        }.items():
            tensors[f"{layer}.{name}"] = rng.uniform(0.5, 1.5, size).astype(np.float32)
    tensors["norm"] = rng.uniform(0.5, 1.5, WIDTH).astype(np.float32)
    return tensors


def _layer(b: ProgramBuilder, layer: int, x: int) -> int:
    q_width, kv_width = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    h, q, k, v = (b.buffer(w) for w in (WIDTH, q_width, kv_width, kv_width))
    b.op("RmsNorm", [x], [h], [f"{layer}.norm1"], eps=EPS)
    tensors = [f"{layer}.q", None, f"{layer}.k", f"{layer}.k_bias", f"{layer}.v", None]
    b.op("Linear", [h], [q, k, v], tensors)
    b.op("RmsNorm", [q], [q], [f"{layer}.q_norm"], eps=EPS)
    for y in (q, k):
        b.op(
            "Rope", [y], [y], head_dim=HEAD_DIM, style="neox", inv_freq=INV_FREQ, scale=1.0, begin=0, offset=0
        )
    a = attention(b, (q, k, v), (HEADS, KV_HEADS), HEAD_DIM, layer=layer, scale=SCALE, window=WINDOWS[layer])
    y, h2, gate, up, act, out = (b.buffer(w) for w in (WIDTH, WIDTH, FFN, FFN, FFN, WIDTH))
    b.op("Linear", [a, x], [y], [f"{layer}.o", None])
    b.op("RmsNorm", [y], [h2], [f"{layer}.norm2"], eps=EPS)
    b.op("Linear", [h2], [gate, up], [f"{layer}.gate", None, f"{layer}.up", None])
    b.op("Glu", [gate, up], [act], activation="silu")
    b.op("Linear", [act, y], [out], [f"{layer}.down", None])
    return out


def build_transformer(path: Path, isa: str, tensors: Tensors) -> Program:
    def define(b: ProgramBuilder) -> int:
        x = embedded(b, "embed", WIDTH)
        for layer in range(LAYERS):
            x = _layer(b, layer, x)
        x = rows_of(b, x, WIDTH)
        b.op("RmsNorm", [x], [x], ["norm"], eps=EPS)
        logits = b.buffer(VOCABULARY)
        b.op("Linear", [x], [logits], ["embed", None])
        b.op("Softcap", [logits], [logits], cap=CAP)
        return logits

    return build(write_gguf(path / "transformer.gguf", tensors), isa, define)


def expected_logits(tensors: Tensors, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of every token of one sequence, in float64; K and V rounded to half floats as the cache keeps them."""
    w = {name: (decoded(t) if isinstance(t, Encoded) else t).astype(float) for name, t in tensors.items()}
    positions = np.arange(len(tokens)).astype(float)

    def half(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return x.astype(np.float16).astype(float)

    x = w["embed"][tokens]
    for i in range(LAYERS):
        h = reference.rms_norm(x, w[f"{i}.norm1"], EPS, WIDTH)
        q, k, v = h @ w[f"{i}.q"].T, h @ w[f"{i}.k"].T + w[f"{i}.k_bias"], h @ w[f"{i}.v"].T
        q = reference.rms_norm(q, w[f"{i}.q_norm"], EPS, HEAD_DIM)
        q, k = (reference.rope(y, positions, HEAD_DIM, "neox", INV_FREQ.astype(float), 1.0) for y in (q, k))
        x = x + reference.attention(q, half(k), half(v), HEAD_DIM, SCALE, 0.0, WINDOWS[i]) @ w[f"{i}.o"].T
        h = reference.rms_norm(x, w[f"{i}.norm2"], EPS, WIDTH)
        act = reference.activation("silu", h @ w[f"{i}.gate"].T) * (h @ w[f"{i}.up"].T)
        x = x + act @ w[f"{i}.down"].T
    logits = reference.rms_norm(x, w["norm"], EPS, WIDTH) @ w["embed"].T
    return CAP * np.tanh(logits / CAP)
