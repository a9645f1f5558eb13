"""PLaMo 3: norms on both sides, q, k and v in one matrix, gate and up in another; windows."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Embed
from puna.models.blocks import (
    Part,
    bare_norm,
    causal_attention,
    fused_qkv,
    gated_as_one,
    logits,
    norm,
    stacked,
)
from puna.models.decoder import Decoder, Stack
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    windows = layer_windows(p, d.num_layers, period=8, size=0)
    rotation = rope(p, "neox", d.head_dim, None)
    windowed = unscaled_rope(p, "neox", d.head_dim, p.number("rope.freq_base_swa", 10000.0))

    def attention(layer: int, x: Value) -> Value:
        q_k_v = fused_normed_qkv(g, d, x, layer)
        turn = windowed if windows[layer] else rotation
        return causal_attention(g, d, layer, turn, q_k_v, window=windows[layer])

    return plamo_decoder(g, d, attention)


def fused_normed_qkv(g: Tracer, d: Decoder, x: Value, layer: int) -> tuple[Value, Value, Value]:
    q, k, v = fused_qkv(g, d, x, layer)
    return norm(g, d, q, f"blk.{layer}.attn_q_norm"), norm(g, d, k, f"blk.{layer}.attn_k_norm"), v


def plamo_decoder(g: Tracer, d: Stack, mixer: Part) -> Value:
    """Logits of a stack of layers x + norm(mixer(norm(x))), x + norm(gated(norm(x)))."""

    def mix(layer: int, x: Value) -> Value:
        y = mixer(layer, norm(g, d, x, f"blk.{layer}.attn_norm"))
        return bare_norm(g, d, y, f"blk.{layer}.post_attention_norm")

    def feed(layer: int, x: Value) -> Value:
        y = gated_as_one(g, norm(g, d, x, f"blk.{layer}.ffn_norm"), f"blk.{layer}", "silu")
        return bare_norm(g, d, y, f"blk.{layer}.post_ffw_norm")

    x = stacked(g, d, g.op(Embed("token_embd")), mix, feed)
    return logits(g, norm(g, d, x, "output_norm"))
