"""Parts that many architectures are wired from; each does one thing and takes no per-family flags."""

from __future__ import annotations

import math
from collections.abc import Callable

from puna.graph import GraphError, Tracer, Value
from puna.graph.ops import (
    Activation,
    Add,
    Attention,
    Embed,
    Glu,
    Linear,
    Moe,
    Mul,
    RmsNorm,
    Rope,
    Rows,
    SampledRows,
    Scale,
    Softcap,
)
from puna.models.decoder import Decoder, Stack


def pre_norm_decoder(
    g: Tracer,
    d: Decoder,
    mixer: Callable[[int, Value], Value],
    feed_forward: Callable[[int, Value], Value] | None = None,
    *,
    ffn_norm: str = "ffn_norm",
    output_norm: str = "output_norm",
    embedding_scale: float = 1.0,
) -> Value:
    """Logits of a stack of layers x + mixer(norm(x)), x + feed_forward(norm(x)).

    mixer: (layer, normalised x) -> what the layer's attention or recurrence adds. feed_forward: the same of
    its second half, which without one is a gated one with SiLU, behind the norm of that name.
    """
    x = g.op(Embed("token_embd"))
    if embedding_scale != 1.0:
        x = g.op(Scale(embedding_scale), x)
    for layer in range(d.num_layers):
        block = f"blk.{layer}"
        x = g.op(Add(), x, mixer(layer, norm(g, d, x, f"{block}.attn_norm")))
        if layer == d.num_layers - 1:
            x = g.op(
                Rows(), x
            )  # no later token sees what follows, so only rows of which something is wanted need it
        y = norm(g, d, x, f"{block}.{ffn_norm}")
        y = gated(g, y, block, "silu") if feed_forward is None else feed_forward(layer, y)
        x = g.op(Add(), x, y)
    return logits(g, norm(g, d, x, output_norm))


def post_norm_decoder(
    g: Tracer, d: Decoder, attention: Callable[[int, Value], Value], softcap: float
) -> Value:
    """Logits of Gemma's stack of layers x + norm(attention(norm(x))), x + norm(gated(norm(x))).

    softcap: of the logits; 0 for none.
    """
    x = g.op(Scale(math.sqrt(d.width)), g.op(Embed("token_embd")))
    for layer in range(d.num_layers):
        block = f"blk.{layer}"
        y = attention(layer, norm(g, d, x, f"{block}.attn_norm"))
        x = g.op(Add(), x, norm(g, d, y, f"{block}.post_attention_norm"))
        if layer == d.num_layers - 1:
            x = g.op(Rows(), x)
        y = gated(g, norm(g, d, x, f"{block}.ffn_norm"), block, "gelu")
        x = g.op(Add(), x, norm(g, d, y, f"{block}.post_ffw_norm"))
    y = logits(g, norm(g, d, x, "output_norm"))
    return g.op(Softcap(softcap), y) if softcap else y


def norm(g: Tracer, d: Stack, x: Value, name: str) -> Value:
    """Over the whole width, or over each head where the weight is as long as a head."""
    return g.op(RmsNorm(name, d.norm_eps), x)


def logits(g: Tracer, x: Value) -> Value:
    """Of the rows to be sampled. The output matrix is the embedding where the file has no other."""
    x = g.op(SampledRows(), x)
    if "output.weight" not in g.shapes:
        return g.op(Linear("token_embd"), x)
    result, (_, num_tokens) = g.op(Linear("output"), x), g.shapes.matrix("token_embd.weight")
    if result.width != num_tokens:
        raise GraphError(f"tensor output.weight is for {result.width} tokens, token_embd for {num_tokens}")
    return result


def qkv(g: Tracer, x: Value, layer: int) -> tuple[Value, Value, Value]:
    q, k, v = (g.op(Linear(f"blk.{layer}.attn_{part}"), x) for part in "qkv")
    return q, k, v


def normed_qkv(g: Tracer, d: Decoder, x: Value, layer: int) -> tuple[Value, Value, Value]:
    """With each head's q and k normalised."""
    q, k, v = qkv(g, x, layer)
    return norm(g, d, q, f"blk.{layer}.attn_q_norm"), norm(g, d, k, f"blk.{layer}.attn_k_norm"), v


def causal_attention(
    g: Tracer,
    d: Decoder,
    layer: int,
    rope: Rope | None,
    qkv: tuple[Value, Value, Value],
    *,
    scale: float | None = None,
    window: int = 0,
    softcap: float = 0.0,
    sinks: str = "",
    gate: Value | None = None,
) -> Value:
    """Attention over rotated q and k, and its output projection.

    scale: of scores; without one it is 1 / sqrt(head_dim). gate: its sigmoid multiplies what heads give.
    """
    attention = Attention(
        layer=layer,
        num_heads=d.num_heads,
        num_kv_heads=d.num_kv_heads,
        head_dim=d.head_dim,
        scale=d.head_dim**-0.5 if scale is None else scale,
        window=window,
        softcap=softcap,
        sinks=sinks,
    )
    q, k, v = qkv
    if rope is not None:
        q, k = g.op(rope, q), g.op(rope, k)
    seen = g.op(attention, q, k, v)
    if gate is not None:
        seen = g.op(Mul(), seen, g.op(Activation("sigmoid"), gate))
    return g.op(Linear(f"blk.{layer}.attn_output"), seen)


def gated(g: Tracer, x: Value, block: str, activation: str, *, suffix: str = "") -> Value:
    """down(activation(gate(x)) * up(x)); suffix: "_shexp" for experts that all tokens share."""
    gate, up, down = (Linear(f"{block}.ffn_{part}{suffix}") for part in ("gate", "up", "down"))
    return g.op(down, g.op(Glu(activation), g.op(gate, x), g.op(up, x)))


def experts(g: Tracer, x: Value, moe: Moe) -> Value:
    """What the experts give that the router chooses."""
    return g.op(moe, x, g.op(Linear(f"{moe.name}.ffn_gate_inp"), x))
