"""Attention whose keys and values are made of latents before they are kept (MLA, not absorbed)."""

from __future__ import annotations

from dataclasses import replace

from puna.graph import GraphError, Tracer, Value
from puna.graph.ops import Columns, Concat, Linear, Repeat, Rope, Scale
from puna.models.architectures.latents.queries import queries
from puna.models.blocks import causal_attention, norm
from puna.models.decoder import Decoder


def expanded_attention(g: Tracer, d: Decoder, layer: int, rotation: Rope, rank: int, x: Value) -> Value:
    """rotation: of the last dimensions of a key, all of which all heads share. rank: columns of the latent.

    Values are narrower than keys; they are kept as wide, with zeros.
    """
    block, rotary_dim = f"blk.{layer}", rotation.head_dim
    plain_dim, heads = d.head_dim - rotary_dim, d.num_heads
    rotation = replace(rotation, head_dim=d.head_dim, begin=plain_dim)
    q = g.op(rotation, queries(g, d, block, x))
    mixed = g.op(Linear(f"{block}.attn_kv_a_mqa"), x)
    latent = norm(g, d, g.op(Columns(0, rank, rank + rotary_dim), mixed), f"{block}.attn_kv_a_norm")
    shared = g.op(Columns(rank, rotary_dim, rank + rotary_dim), mixed)
    kv = g.op(Linear(f"{block}.attn_kv_b"), latent)
    value_dim = kv.width // heads - plain_dim
    if kv.width % heads or not 0 < value_dim <= d.head_dim:
        raise GraphError(f"tensor {block}.attn_kv_b.weight gives {kv.width} values for {heads} heads")
    plain = g.op(Columns(0, plain_dim, plain_dim + value_dim), kv)
    k = g.op(rotation, g.op(Concat(heads), plain, g.op(Repeat(heads), shared)))
    v = g.op(Columns(plain_dim, value_dim, plain_dim + value_dim), kv)
    if value_dim < d.head_dim:
        nothing = g.op(Scale(0.0), g.op(Columns(0, d.head_dim - value_dim, d.head_dim), k))
        v = g.op(Concat(heads), v, nothing)
    return causal_attention(g, d, layer, None, (q, k, v), value_dim=value_dim)
