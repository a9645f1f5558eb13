"""Hunyuan 3: normalised heads and experts, one of them shared."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import Part, causal_attention, normed_qkv, pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.prediction import prediction_head
from puna.models.rope import FreqFactors, rope


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    return pre_norm_decoder(g, d, *_parts(g, p, d, freq_factors))


def trace_prediction(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    return prediction_head(g, d, *_parts(g, p, d, freq_factors))


def _parts(g: Tracer, p: Hyperparameters, d: Decoder, freq_factors: FreqFactors | None) -> tuple[Part, Part]:
    rotation = rope(p, "neox", d.head_dim, freq_factors)

    def attention(layer: int, x: Value) -> Value:
        return causal_attention(g, d, layer, rotation, normed_qkv(g, d, x, layer))

    return attention, mixture(g, p, scores="sigmoid", normalized=False)
