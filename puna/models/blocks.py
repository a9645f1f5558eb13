"""Parts that many architectures are wired from; each does one thing and takes no per-family flags."""

from __future__ import annotations

import math
from collections.abc import Callable

from puna.gguf.pooling import Pooling
from puna.graph import GraphError, Tracer, Value
from puna.graph.ops import (
    Activation,
    Add,
    AddVector,
    Attention,
    Clamp,
    Columns,
    Embed,
    EmbedPosition,
    Glu,
    L2Norm,
    LayerNorm,
    Linear,
    Moe,
    Mul,
    MulVector,
    RmsNorm,
    Rope,
    Rows,
    SampledRows,
    Scale,
    Softcap,
    Softmax,
)
from puna.models.decoder import Decoder, Stack
from puna.models.ranking import NoScores

Part = Callable[[int, Value], Value]
"""(layer, x) -> what one half of the layer gives."""

Norm = Callable[[Tracer, Stack, Value, str], Value]
"""norm() or layer_norm()."""


def pre_norm_decoder(
    g: Tracer,
    d: Decoder,
    mixer: Part,
    feed_forward: Part | None = None,
    *,
    normalize: Norm | None = None,
    ffn_norm: str = "ffn_norm",
    output_norm: str = "output_norm",
    embedding_scale: float = 1.0,
    embedding_norm: str = "",
    positions: str = "",
) -> Value:
    """Logits of a stack of layers x + mixer(norm(x)), x + feed_forward(norm(x)).

    normalize: without one, norm(). positions: the name of embeddings of positions, if there are any.

    feed_forward: without one it is a gated one with SiLU. ffn_norm: what stands in front of it.
    """

    normed = norm if normalize is None else normalize

    def mix(layer: int, x: Value) -> Value:
        return mixer(layer, normed(g, d, x, f"blk.{layer}.attn_norm"))

    def feed(layer: int, x: Value) -> Value:
        y = normed(g, d, x, f"blk.{layer}.{ffn_norm}")
        return gated(g, y, f"blk.{layer}", "silu") if feed_forward is None else feed_forward(layer, y)

    x = g.op(Embed("token_embd"))
    if embedding_scale != 1.0:
        x = g.op(Scale(embedding_scale), x)
    if embedding_norm:
        x = normed(g, d, x, embedding_norm)
    if positions:
        x = g.op(Add(), x, _positions(g, d, positions))
    return logits(g, normed(g, d, stacked(g, d, x, mix, feed), output_norm))


def _positions(g: Tracer, d: Decoder, name: str) -> Value:
    _, num_positions = g.shapes.matrix(f"{name}.weight")
    if num_positions < d.context_length:
        raise GraphError(
            f"tensor {name}.weight is for {num_positions} positions, the context is of {d.context_length}"
        )
    return g.op(EmbedPosition(name))


def parallel_decoder(
    g: Tracer,
    d: Decoder,
    mixer: Part,
    feed_forward: Part,
    *,
    mixer_norm: str,
    ffn_norm: str,
    normalize: Norm | None = None,
) -> Value:
    """Logits of a stack of layers x + mixer(normalize(x)) + feed_forward(normalize(x)).

    mixer_norm, ffn_norm: names of the norms of a layer, or of the one that both read. normalize: without one,
    layer_norm().
    """
    normed = layer_norm if normalize is None else normalize
    x = g.op(Embed("token_embd"))
    for layer in range(d.num_layers):
        block = f"blk.{layer}"
        for_mixer = for_ffn = normed(g, d, x, f"{block}.{mixer_norm}")
        if ffn_norm != mixer_norm:
            for_ffn = normed(g, d, x, f"{block}.{ffn_norm}")
        mixed = mixer(layer, for_mixer)
        if layer == d.num_layers - 1:
            x, mixed, for_ffn = (g.op(Rows(), value) for value in (x, mixed, for_ffn))
        x = g.op(Add(), g.op(Add(), x, mixed), feed_forward(layer, for_ffn))
    return logits(g, normed(g, d, x, "output_norm"))


def sandwich_decoder(g: Tracer, d: Decoder, x: Value, mixer: Part, feed_forward: Part) -> Value:
    """Logits of a stack of layers x + norm(mixer(norm(x))), x + norm(feed_forward(norm(x))).

    x: the tokens' embeddings.
    """

    def mix(layer: int, x: Value) -> Value:
        y = mixer(layer, norm(g, d, x, f"blk.{layer}.attn_norm"))
        return norm(g, d, y, f"blk.{layer}.post_attention_norm")

    def feed(layer: int, x: Value) -> Value:
        y = feed_forward(layer, norm(g, d, x, f"blk.{layer}.ffn_norm"))
        return norm(g, d, y, f"blk.{layer}.post_ffw_norm")

    return logits(g, norm(g, d, stacked(g, d, x, mix, feed), "output_norm"))


def gemma_decoder(g: Tracer, d: Decoder, attention: Part, softcap: float) -> Value:
    """softcap: of the logits; 0 for none."""
    x = g.op(Scale(math.sqrt(d.width)), g.op(Embed("token_embd")))
    y = sandwich_decoder(g, d, x, attention, lambda layer, x: gated(g, x, f"blk.{layer}", "gelu"))
    return g.op(Softcap(softcap), y) if softcap else y


def post_norm_decoder(g: Tracer, d: Decoder, attention: Part) -> Value:
    """Logits of a stack of layers x + norm(attention(x)), x + norm(gated(x))."""

    def mix(layer: int, x: Value) -> Value:
        return norm(g, d, attention(layer, x), f"blk.{layer}.post_attention_norm")

    def feed(layer: int, x: Value) -> Value:
        return norm(g, d, gated(g, x, f"blk.{layer}", "silu"), f"blk.{layer}.post_ffw_norm")

    return logits(g, norm(g, d, stacked(g, d, g.op(Embed("token_embd")), mix, feed), "output_norm"))


def stacked(g: Tracer, d: Stack, x: Value, mix: Part, feed: Part) -> Value:
    """Layers x + mix(x), x + feed(x)."""
    for layer in range(d.num_layers):
        x = g.op(Add(), x, mix(layer, x))
        if layer == d.num_layers - 1:
            x = g.op(Rows(), x)  # no later token sees what follows: only rows that are asked for need it
        x = g.op(Add(), x, feed(layer, x))
    return x


def norm(g: Tracer, d: Stack, x: Value, name: str) -> Value:
    """Over the whole width, or over each head where the weight is as long as a head."""
    return g.op(RmsNorm(name, d.norm_eps), x)


def unit_norm(g: Tracer, d: Stack, x: Value, *, size: int = 0) -> Value:
    """Without a weight; over the whole width, or groups of so many columns."""
    size = size or x.width
    return g.op(Scale(math.sqrt(size)), g.op(L2Norm(size, size * d.norm_eps), x))


def bare_norm(g: Tracer, d: Stack, x: Value, name: str) -> Value:
    """Over the whole width, with a weight that files call by the norm's name alone."""
    return g.op(MulVector(name), unit_norm(g, d, x))


def biased_norm(g: Tracer, d: Stack, x: Value, name: str) -> Value:
    return g.op(AddVector(f"{name}.bias"), norm(g, d, x, name))


def layer_norm(g: Tracer, d: Stack, x: Value, name: str) -> Value:
    return g.op(LayerNorm(name, d.norm_eps), x)


def logits(g: Tracer, x: Value) -> Value:
    """Of the rows to be sampled. The output matrix is the embedding where the file has no other."""
    g.hidden = x
    x = g.op(SampledRows(), x)
    if "output.weight" not in g.shapes:
        return g.op(Linear("token_embd"), x)
    result, (_, num_tokens) = g.op(Linear("output"), x), g.shapes.matrix("token_embd.weight")
    if result.width != num_tokens:
        raise GraphError(f"tensor output.weight is for {result.width} tokens, token_embd for {num_tokens}")
    return result


def ranked(g: Tracer, logits: Value, pooling: Pooling | None) -> Value:
    """The logits. A model that ranks texts has, in place of hidden states, how likely its labels are.

    Raises NoScores: converters that do not know Qwen3-Reranker leave its two rows in the output matrix.
    """
    if pooling == "rank":
        assert g.hidden is not None, "logits come from hidden states"
        if "cls.output.weight" not in g.shapes:
            raise NoScores("tensor cls.output.weight is")
        g.hidden = g.op(Softmax(), g.op(Linear("cls.output"), g.hidden))
    return logits


def qkv(g: Tracer, x: Value, layer: int) -> tuple[Value, Value, Value]:
    q, k, v = (g.op(Linear(f"blk.{layer}.attn_{part}"), x) for part in "qkv")
    return q, k, v


def fused_qkv(
    g: Tracer, d: Decoder, x: Value, layer: int, *, limit: float = 0.0
) -> tuple[Value, Value, Value]:
    """The same where the file may have one matrix for all three, one behind the other.

    limit: what their values are kept within; 0: nothing.
    """
    name = f"blk.{layer}.attn_qkv"
    if f"{name}.weight" not in g.shapes:
        q, k, v = (clamped(g, y, limit) for y in qkv(g, x, layer))
        return q, k, v
    mixed = clamped(g, g.op(Linear(name), x), limit)
    q_width, kv = d.num_heads * d.head_dim, d.num_kv_heads * d.head_dim
    if mixed.width != q_width + 2 * kv:
        raise GraphError(
            f"tensor {name}.weight gives {mixed.width} values where q, k and v are {q_width + 2 * kv}"
        )
    ends = [(0, q_width), (q_width, kv), (q_width + kv, kv)]
    q, k, v = (g.op(Columns(begin, size, mixed.width), mixed) for begin, size in ends)
    return q, k, v


def clamped(g: Tracer, x: Value, limit: float) -> Value:
    return g.op(Clamp(limit), x) if limit else x


def normed_qkv(g: Tracer, d: Decoder, x: Value, layer: int) -> tuple[Value, Value, Value]:
    """With each head's q and k normalised."""
    q, k, v = qkv(g, x, layer)
    return norm(g, d, q, f"blk.{layer}.attn_q_norm"), norm(g, d, k, f"blk.{layer}.attn_k_norm"), v


def layer_normed_qkv(g: Tracer, d: Decoder, x: Value, layer: int) -> tuple[Value, Value, Value]:
    """With each head's q and k normalised where the file has the norms; each head has weights of its own."""
    q, k, v = qkv(g, x, layer)
    if f"blk.{layer}.attn_q_norm.weight" not in g.shapes:
        return q, k, v
    q, k = layer_norm(g, d, q, f"blk.{layer}.attn_q_norm"), layer_norm(g, d, k, f"blk.{layer}.attn_k_norm")
    return q, k, v


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
    alibi: float = 0.0,
    chunk: int = 0,
    gate: Value | None = None,
    gate_function: str = "sigmoid",
    output_norm: str = "",
    value_dim: int = 0,
    state: int | None = None,
) -> Value:
    """Attention over rotated q and k, and its output projection.

    scale: of scores; without one it is 1 / sqrt(head_dim). gate: its gate_function multiplies heads' results,
    column by column or head by head. output_norm: the name of a norm in front of the output projection.
    value_dim: the columns of a head that the projection reads, if not all. state: the number under which keys
    and values are kept, if not the layer's.
    """
    attention = Attention(
        layer=layer if state is None else state,
        num_heads=d.num_heads,
        num_kv_heads=d.num_kv_heads,
        head_dim=d.head_dim,
        scale=d.head_dim**-0.5 if scale is None else scale,
        window=window,
        softcap=softcap,
        sinks=sinks,
        alibi=alibi,
        chunk=chunk,
    )
    q, k, v = qkv
    if rope is not None:
        q, k = g.op(rope, q), g.op(rope, k)
    seen = g.op(attention, q, k, v)
    if value_dim:
        seen = g.op(Columns(0, value_dim, d.head_dim), seen)
    if gate is not None:
        seen = g.op(Mul(), seen, g.op(Activation(gate_function), gate))
    if output_norm:
        seen = norm(g, d, seen, output_norm)
    return g.op(Linear(f"blk.{layer}.attn_output"), seen)


def gated(g: Tracer, x: Value, block: str, activation: str, *, suffix: str = "", limit: float = 0.0) -> Value:
    """down(activation(gate(x)) * up(x)); suffix: "_shexp" for experts that all tokens share; limit: Glu's."""
    gate, up, down = (Linear(f"{block}.ffn_{part}{suffix}") for part in ("gate", "up", "down"))
    return g.op(down, g.op(Glu(activation, limit), g.op(gate, x), g.op(up, x)))


def gated_as_one(g: Tracer, x: Value, block: str, activation: str, *, suffix: str = "") -> Value:
    """The same where one matrix gives gate and up, one behind the other."""
    y = g.op(Linear(f"{block}.ffn_up{suffix}"), x)
    gate, up = (g.op(Columns(begin, y.width // 2, y.width), y) for begin in (0, y.width // 2))
    return g.op(Linear(f"{block}.ffn_down{suffix}"), g.op(Glu(activation), gate, up))


def two_layers(g: Tracer, x: Value, block: str, activation: str, *, suffix: str = "") -> Value:
    """down(activation(up(x))); suffix: as of gated()."""
    y = g.op(Activation(activation), g.op(Linear(f"{block}.ffn_up{suffix}"), x))
    return g.op(Linear(f"{block}.ffn_down{suffix}"), y)


def experts(g: Tracer, x: Value, moe: Moe) -> Value:
    """What the experts give that the router chooses."""
    return g.op(moe, x, g.op(Linear(f"{moe.name}.ffn_gate_inp"), x))
