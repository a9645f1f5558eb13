"""Attention with q, k and v normalised, whose later layers attend to what earlier ones keep (Gemma 3n, Gemma
4).
"""

from __future__ import annotations

import math

from puna.graph import Tracer, Value
from puna.graph.ops import Attention, L2Norm, Linear, Rope, Scale, SharedAttention
from puna.models.blocks import norm
from puna.models.decoder import Stack
from puna.models.heads import Heads
from puna.models.hyperparameters import HyperparameterError, Hyperparameters


def keeping_layers(p: Hyperparameters, num_layers: int, *, num_sharing: int) -> int:
    """How many layers, the first ones, keep keys and values. num_sharing: where the file is silent."""
    name = "attention.shared_kv_layers"
    num_sharing = p.integer(name, num_sharing, minimum=0)
    if num_sharing and num_layers - num_sharing < 2:
        raise HyperparameterError(f"metadata {p.key(name)} is {num_sharing} of {num_layers} layers")
    return num_layers - num_sharing


def kept_by(layer: int, num_keeping: int, window: int) -> int:
    """The layer whose keys and values a layer reads: its own, or the last of its kind that keeps any.

    num_keeping: layers that keep them; the last of these has no window, the one before it has.
    """
    if layer < num_keeping:
        return layer
    return num_keeping - (2 if window else 1)


def normed_attention(
    g: Tracer, d: Stack, heads: Heads, rotation: Rope, layer: int, x: Value, rows: Value, *, keeper: int
) -> Value:
    """x: of all tokens; rows: of those that attend, x or rows of it. keeper: see kept_by()."""
    block = f"blk.{layer}"
    q = g.op(rotation, norm(g, d, g.op(Linear(f"{block}.attn_q"), rows), f"{block}.attn_q_norm"))
    if keeper == layer:
        seen = _keep_and_attend(g, d, heads, rotation, layer, q, x)
    else:
        for name in ("attn_k", "attn_k_norm", "attn_v"):
            g.leave_out(f"{block}.{name}.weight")
        seen = g.op(
            SharedAttention(
                layer=keeper,
                num_heads=heads.num_heads,
                num_kv_heads=heads.num_kv_heads,
                head_dim=heads.head_dim,
                scale=1.0,
                window=heads.window,
            ),
            q,
        )
    return g.op(Linear(f"{block}.attn_output"), seen)


def _keep_and_attend(
    g: Tracer, d: Stack, heads: Heads, rotation: Rope, layer: int, q: Value, x: Value
) -> Value:
    """Where the file has no matrix for values they are the keys as they were."""
    block = f"blk.{layer}"
    k = v = g.op(Linear(f"{block}.attn_k"), x)
    if f"{block}.attn_v.weight" in g.shapes:
        v = g.op(Linear(f"{block}.attn_v"), x)
    k = g.op(rotation, norm(g, d, k, f"{block}.attn_k_norm"))
    attention = Attention(
        layer=layer,
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
        scale=1.0,
        window=heads.window,
    )
    return g.op(attention, q, k, _unit_rms(g, d, v, heads.head_dim))


def _unit_rms(g: Tracer, d: Stack, x: Value, size: int) -> Value:
    """Each head's root mean square made 1."""
    return g.op(Scale(math.sqrt(size)), g.op(L2Norm(size, size * d.norm_eps), x))
