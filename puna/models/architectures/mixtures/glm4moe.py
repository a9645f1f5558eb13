"""GLM-4.5 and later: other names of norms; only the larger models normalise heads."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, normed_qkv, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, None)

    def attention(layer: int, x: Value) -> Value:
        has_norms = f"blk.{layer}.attn_q_norm.weight" in g.shapes
        q_k_v = normed_qkv(g, d, x, layer) if has_norms else qkv(g, x, layer)
        return causal_attention(g, d, layer, rotation, q_k_v)

    feed_forward = mixture(g, p, scores="sigmoid", normalized=False)
    return pre_norm_decoder(g, d, attention, feed_forward, ffn_norm="post_attention_norm")
