"""GLM-4.5 and later: other names of norms; only the larger models normalise heads."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import Part, causal_attention, normed_qkv, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.prediction import prediction_head
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    return pre_norm_decoder(g, d, *_parts(g, p, d), ffn_norm="post_attention_norm")


def trace_prediction(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    return prediction_head(g, d, *_parts(g, p, d), ffn_norm="post_attention_norm")


def _parts(g: Tracer, p: Hyperparameters, d: Decoder) -> tuple[Part, Part]:
    rotation = rope(p, "neox", d.head_dim, None)

    def attention(layer: int, x: Value) -> Value:
        has_norms = f"blk.{layer}.attn_q_norm.weight" in g.shapes
        q_k_v = normed_qkv(g, d, x, layer) if has_norms else qkv(g, x, layer)
        return causal_attention(g, d, layer, rotation, q_k_v)

    return attention, mixture(g, p, scores="sigmoid", normalized=False)
