"""gpt-oss: attention with sinks, every other layer with a window; all feed-forward parts are experts."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Moe
from puna.models.blocks import causal_attention, experts, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, None)
    windows = layer_windows(p, d.num_layers, period=2, size=128)
    num_used = p.integer("expert_used_count")

    def attention(layer: int, x: Value) -> Value:
        sinks = f"blk.{layer}.attn_sinks.weight"
        q_k_v = qkv(g, x, layer)
        return causal_attention(g, d, layer, rotation, q_k_v, window=windows[layer], sinks=sinks)

    def feed_forward(layer: int, x: Value) -> Value:
        moe = Moe(f"blk.{layer}", num_used, "chosen_softmax", False, 1.0, "swiglu_oai")
        return experts(g, x, moe)

    return pre_norm_decoder(g, d, attention, feed_forward, ffn_norm="post_attention_norm")
