"""What the ops mean, in numpy and float64."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def rms_norm(x: Array, weight: Array, eps: float, group: int) -> Array:
    grouped = x.reshape(*x.shape[:-1], -1, group)
    scale = 1 / np.sqrt((grouped**2).mean(-1, keepdims=True) + eps)
    return (grouped * scale * weight).reshape(x.shape)


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


def activation(name: str, x: Array) -> Array:
    if name == "silu":
        return x / (1 + np.exp(-x))
    if name == "sigmoid":
        return 1 / (1 + np.exp(-x))
    if name == "relu_squared":
        return np.maximum(x, 0) ** 2
    if name == "softplus":
        return np.log1p(np.exp(x))
    if name == "gelu":
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return np.maximum(x, 0)


def rope(
    x: Array, positions: Array, head_dim: int, style: str, inv_freq: Array, scale: float, begin: int = 0
) -> Array:
    result = x.reshape(len(x), -1, head_dim).copy()
    heads, half = result[..., begin:], len(inv_freq)
    angles = positions[:, None, None] * inv_freq
    cos, sin = np.cos(angles) * scale, np.sin(angles) * scale
    first = slice(0, 2 * half, 2) if style == "normal" else slice(0, half)
    second = slice(1, 2 * half, 2) if style == "normal" else slice(half, 2 * half)
    a, b = heads[..., first].copy(), heads[..., second].copy()
    heads[..., first], heads[..., second] = a * cos - b * sin, b * cos + a * sin
    return result.reshape(x.shape)


def attention(
    q: Array,
    k: Array,
    v: Array,
    head_dim: int,
    scale: float,
    softcap: float = 0.0,
    window: int = 0,
    sinks: NDArray[np.float32] | None = None,
    alibi: float = 0.0,
) -> Array:
    """Of one sequence: q [n, heads * head_dim] are its last n positions, k and v all of them."""
    q, k = (x.reshape(len(x), -1, head_dim) for x in (q, k))
    v = v.reshape(len(v), k.shape[1], -1)
    repeats = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, repeats, axis=1), np.repeat(v, repeats, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    query, key = np.arange(len(k) - len(q), len(k))[:, None], np.arange(len(k))[None, :]
    scores -= alibi_slopes(scores.shape[0], alibi)[:, None, None] * (query - key)
    seen = key <= query
    if window:
        seen &= key > query - window
    scores = np.where(seen, scores, -np.inf)
    if sinks is not None:
        column = np.broadcast_to(sinks[:, None, None].astype(float), (*scores.shape[:2], 1))
        scores = np.concatenate([scores, column], axis=-1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    weights = weights[..., : len(k)]
    return np.einsum("hqk,khd->qhd", weights, v).reshape(len(q), -1)


def alibi_slopes(num_heads: int, steepness: float) -> Array:
    """Of each head, as in the code that came with the paper (Press et al., 2022), whose steepness is 8."""
    if not steepness:
        return np.zeros(num_heads)
    n = 2 ** math.floor(math.log2(num_heads))
    first = 2.0 ** (-steepness / n)
    between = 2.0 ** (-steepness / (2 * n))
    others = num_heads - n
    return np.concatenate([first ** np.arange(1, n + 1), between ** np.arange(1, 2 * others, 2)])


def softmax(x: Array) -> Array:
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def largest(x: Array, count: int) -> NDArray[np.int64]:
    """Their places in each row, the largest first, of equal ones the first."""
    return np.argsort(-x, axis=-1, kind="stable")[..., :count]


def choose_experts(
    logits: Array,
    num_used: int,
    scores: str,
    *,
    normalized: bool,
    scale: float,
    groups: tuple[int, int] = (1, 1),
    choice_bias: NDArray[np.float32] | None = None,
) -> tuple[NDArray[np.int64], Array]:
    """(experts, weights) [tokens, num_used]. groups: how many there are, and are used."""
    x = {"softmax": softmax(logits), "sigmoid": 1 / (1 + np.exp(-logits)), "chosen_softmax": logits}[scores]
    ranks = x if choice_bias is None else x + choice_bias
    if groups[0] > 1:
        grouped = ranks.reshape(len(x), groups[0], -1)
        used = largest(np.sort(grouped, axis=-1)[..., -2:].sum(-1), groups[1])
        is_used = np.zeros((len(x), groups[0]), bool)
        np.put_along_axis(is_used, used, values=True, axis=-1)
        ranks = np.where(is_used[..., None], grouped, -np.inf).reshape(ranks.shape)
    experts = largest(ranks, num_used)
    weights = np.take_along_axis(x, experts, axis=-1)
    if scores == "chosen_softmax":
        weights = softmax(weights)
    if normalized:
        weights = weights / np.maximum(weights.sum(-1, keepdims=True), 6.103515625e-5)
    return experts, weights * scale


def gated(name: str, gate: Array, up: Array, limit: float = 0.0) -> Array:
    if name == "swiglu_oai":
        gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
        return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
    if name == "silu_limited":
        return np.minimum(activation("silu", gate), limit) * np.clip(up, -limit, limit)
    if name == "limited_silu":
        return activation("silu", np.minimum(gate, limit)) * np.clip(up, -limit, limit)
    return activation(name, gate) * up


def l2_norm(x: Array, eps: float, group: int) -> Array:
    grouped = x.reshape(*x.shape[:-1], -1, group)
    return (grouped / np.sqrt((grouped**2).sum(-1, keepdims=True) + eps)).reshape(x.shape)


def short_conv(x: Array, weight: Array, bias: Array | None, function: str) -> Array:
    """Of one sequence from its beginning; weight: [channels, size]."""
    size = weight.shape[1]
    padded = np.concatenate([np.zeros((size - 1, x.shape[1])), x])
    out = sum(padded[i : i + len(x)] * weight[:, i] for i in range(size))
    assert isinstance(out, np.ndarray)
    if bias is not None:
        out = out + bias
    return activation("silu", out) if function == "silu" else out


def gated_delta_net(
    q: Array, k: Array, v: Array, decay: Array, beta: Array, key_dim: int, scale: float, grouped: bool
) -> Array:
    """Of one sequence from its beginning. decay: of heads, or of each row of their states."""
    heads = beta.shape[1]
    decay = decay.reshape(len(q), heads, -1, 1)
    q, k, v = q.reshape(len(q), -1, key_dim), k.reshape(len(k), -1, key_dim), v.reshape(len(v), heads, -1)
    key_heads = q.shape[1]
    out = np.zeros_like(v)
    for head in range(heads):
        key = head // (heads // key_heads) if grouped else head % key_heads
        state = np.zeros((key_dim, v.shape[2]))
        for t in range(len(v)):
            state *= np.exp(decay[t, head])
            correction = beta[t, head] * (v[t, head] - state.T @ k[t, key])
            state += np.outer(k[t, key], correction)
            out[t, head] = state.T @ q[t, key] * scale
    return out.reshape(len(v), -1)


def channel_scan(x: Array, b: Array, c: Array, dt: Array, a: Array, d: Array) -> Array:
    """Of one sequence from its beginning; a: [channels, state]."""
    dt, state, out = activation("softplus", dt), np.zeros(a.shape), np.zeros_like(x)
    for t in range(len(x)):
        state = np.exp(dt[t, :, None] * a) * state + np.outer(x[t] * dt[t], b[t])
        out[t] = state @ c[t] + d * x[t]
    return out


def selective_scan(
    x: Array, b: Array, c: Array, dt: Array, a: Array, d: Array, dt_bias: Array, groups: int
) -> Array:
    """Of one sequence from its beginning."""
    heads = len(a)
    x = x.reshape(len(x), heads, -1)
    b, c = (np.repeat(y.reshape(len(y), groups, -1), heads // groups, axis=1) for y in (b, c))
    dt = activation("softplus", dt + dt_bias)
    out = np.zeros_like(x)
    for head in range(heads):
        state = np.zeros((x.shape[2], b.shape[2]))
        for t in range(len(x)):
            state = np.exp(a[head] * dt[t, head]) * state + np.outer(x[t, head] * dt[t, head], b[t, head])
            out[t, head] = state @ c[t, head] + d[head] * x[t, head]
    return out.reshape(len(x), -1)
