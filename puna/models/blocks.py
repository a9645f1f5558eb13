"""Parts that many architectures are wired from; each does one thing and takes no per-family flags."""

from __future__ import annotations

from collections.abc import Callable

from puna.graph import Attention, GraphError, RopeConfig, Tracer, Value
from puna.models.decoder import Decoder


def pre_norm_decoder(g: Tracer, d: Decoder, attention: Callable[[int, Value], Value]) -> Value:
    """Logits of a stack of layers x + attention(norm(x)), x + swiglu(norm(x)).

    attention: (layer, normalised x) -> what the layer's attention adds.
    """
    x = g.embed("token_embd")
    for layer in range(d.num_layers):
        block = f"blk.{layer}"
        x = g.add(x, attention(layer, g.rms_norm(x, f"{block}.attn_norm", d.norm_eps)))
        if layer == d.num_layers - 1:
            x = g.rows(x)  # no later token attends to what follows, so only the rows to sample need it
        x = g.add(x, swiglu(g, g.rms_norm(x, f"{block}.ffn_norm", d.norm_eps), block))
    return logits(g, g.rms_norm(x, "output_norm", d.norm_eps))


def logits(g: Tracer, x: Value) -> Value:
    """The output matrix is the embedding where the file has no other."""
    if not g.has("output"):
        return g.linear(x, "token_embd")
    result, num_tokens = g.linear(x, "output"), g.rows_of("token_embd")
    if result.width != num_tokens:
        raise GraphError(f"tensor output.weight is for {result.width} tokens, token_embd for {num_tokens}")
    return result


def causal_attention(g: Tracer, d: Decoder, layer: int, q: Value, k: Value, v: Value) -> Value:
    """Attention over all earlier tokens, scores scaled by 1 / sqrt(head_dim), and its output projection."""
    attributes = Attention(
        layer=layer,
        num_heads=d.num_heads,
        num_kv_heads=d.num_kv_heads,
        head_dim=d.head_dim,
        scale=d.head_dim**-0.5,
    )
    return g.linear(g.attention(q, k, v, attributes), f"blk.{layer}.attn_output")


def rotated(g: Tracer, d: Decoder, rope: RopeConfig, q: Value, k: Value) -> tuple[Value, Value]:
    return g.rope(q, d.head_dim, rope), g.rope(k, d.head_dim, rope)


def swiglu(g: Tracer, x: Value, block: str) -> Value:
    """down(silu(gate(x)) * up(x))"""
    gate, up = g.linear(x, f"{block}.ffn_gate"), g.linear(x, f"{block}.ffn_up")
    return g.linear(g.glu(gate, up, "silu"), f"{block}.ffn_down")
