"""Parts that many architectures are wired from; each does one thing and takes no per-family flags."""

from __future__ import annotations

import math
from collections.abc import Callable

from puna.graph import Attention, FullAttention, GraphError, RopeConfig, StateSpec, Tracer, Value
from puna.models.decoder import Decoder


def pre_norm_decoder(g: Tracer, d: Decoder, attention: Callable[[int, Value], Value]) -> Value:
    """Logits of a stack of layers x + attention(norm(x)), x + gated(norm(x)).

    attention: (layer, normalised x) -> what the layer's attention adds.
    """
    x = g.embed("token_embd")
    for layer in range(d.num_layers):
        block = f"blk.{layer}"
        x = g.add(x, attention(layer, g.rms_norm(x, f"{block}.attn_norm", d.norm_eps)))
        if layer == d.num_layers - 1:
            x = g.rows(x)  # no later token attends to what follows, so only the rows to sample need it
        x = g.add(x, gated(g, g.rms_norm(x, f"{block}.ffn_norm", d.norm_eps), block, "silu"))
    return logits(g, g.rms_norm(x, "output_norm", d.norm_eps))


def post_norm_decoder(
    g: Tracer, d: Decoder, attention: Callable[[int, Value], Value], softcap: float
) -> Value:
    """Logits of Gemma's stack of layers x + norm(attention(norm(x))), x + norm(gated(norm(x))).

    softcap: of the logits; 0 for none.
    """
    x = g.scale(g.embed("token_embd"), math.sqrt(d.width))
    for layer in range(d.num_layers):
        block = f"blk.{layer}"
        y = attention(layer, g.rms_norm(x, f"{block}.attn_norm", d.norm_eps))
        x = g.add(x, g.rms_norm(y, f"{block}.post_attention_norm", d.norm_eps))
        if layer == d.num_layers - 1:
            x = g.rows(x)
        y = gated(g, g.rms_norm(x, f"{block}.ffn_norm", d.norm_eps), block, "gelu")
        x = g.add(x, g.rms_norm(y, f"{block}.post_ffw_norm", d.norm_eps))
    y = logits(g, g.rms_norm(x, "output_norm", d.norm_eps))
    return g.softcap(y, softcap) if softcap else y


def logits(g: Tracer, x: Value) -> Value:
    """The output matrix is the embedding where the file has no other."""
    if not g.has("output"):
        return g.linear(x, "token_embd")
    result, num_tokens = g.linear(x, "output"), g.rows_of("token_embd")
    if result.width != num_tokens:
        raise GraphError(f"tensor output.weight is for {result.width} tokens, token_embd for {num_tokens}")
    return result


def causal_attention(
    g: Tracer,
    d: Decoder,
    layer: int,
    q: Value,
    k: Value,
    v: Value,
    *,
    scale: float | None = None,
    state: StateSpec = FullAttention(),
    softcap: float = 0.0,
) -> Value:
    """Attention and its output projection. scale: of scores; without one it is 1 / sqrt(head_dim)."""
    attributes = Attention(
        layer=layer,
        num_heads=d.num_heads,
        num_kv_heads=d.num_kv_heads,
        head_dim=d.head_dim,
        scale=d.head_dim**-0.5 if scale is None else scale,
        state=state,
        softcap=softcap,
    )
    return g.linear(g.attention(q, k, v, attributes), f"blk.{layer}.attn_output")


def rotated(g: Tracer, d: Decoder, rope: RopeConfig, q: Value, k: Value) -> tuple[Value, Value]:
    return g.rope(q, d.head_dim, rope), g.rope(k, d.head_dim, rope)


def gated(g: Tracer, x: Value, block: str, activation: str) -> Value:
    """down(activation(gate(x)) * up(x))"""
    gate, up = g.linear(x, f"{block}.ffn_gate"), g.linear(x, f"{block}.ffn_up")
    return g.linear(g.glu(gate, up, activation), f"{block}.ffn_down")
