"""PLaMo 3: norms on both sides, q, k and v in one matrix, gate and up in another; windows."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Embed
from puna.models.blocks import (
    bare_norm,
    causal_attention,
    fused_qkv,
    gated_as_one,
    logits,
    norm,
    stacked,
)
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    windows = layer_windows(p, d.num_layers, period=8, size=0)
    rotation = rope(p, "neox", d.head_dim, None)
    windowed = unscaled_rope(p, "neox", d.head_dim, p.number("rope.freq_base_swa", 10000.0))

    def mix(layer: int, x: Value) -> Value:
        block, window = f"blk.{layer}", windows[layer]
        q, k, v = fused_qkv(g, d, norm(g, d, x, f"{block}.attn_norm"), layer)
        q, k = norm(g, d, q, f"{block}.attn_q_norm"), norm(g, d, k, f"{block}.attn_k_norm")
        y = causal_attention(g, d, layer, windowed if window else rotation, (q, k, v), window=window)
        return bare_norm(g, d, y, f"{block}.post_attention_norm")

    def feed(layer: int, x: Value) -> Value:
        block = f"blk.{layer}"
        y = gated_as_one(g, norm(g, d, x, f"{block}.ffn_norm"), block, "silu")
        return bare_norm(g, d, y, f"{block}.post_ffw_norm")

    x = stacked(g, d, g.op(Embed("token_embd")), mix, feed)
    return logits(g, norm(g, d, x, "output_norm"))
