"""Granite 3 and later: sums with fixed multipliers; in hybrids layers without KV heads are Mamba-2."""

from __future__ import annotations

import msgspec

from puna.graph import Tracer, Value
from puna.graph.ops import Scale
from puna.models.blocks import causal_attention, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.recurrent.selective_scan import Mamba2, mamba2
from puna.models.rope import FreqFactors, rope
from puna.models.windows import layer_windows


class Multipliers(msgspec.Struct, frozen=True):
    embeddings: float
    residuals: float
    logits: float
    """What they are divided by."""

    @classmethod
    def read(cls, p: Hyperparameters, default: Multipliers) -> Multipliers:
        """default: where the file does not say."""
        return cls(
            embeddings=p.multiplier("embedding_scale", default.embeddings),
            residuals=p.multiplier("residual_scale", default.residuals),
            logits=p.multiplier("logit_scale", default.logits),
        )


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    rotates = p.flag("rope.scaling.finetuned", True)
    return multiplied_decoder(g, p, Multipliers.read(p, Multipliers(1.0, 1.0, 1.0)), rotates, freq_factors)


def multiplied_decoder(
    g: Tracer, p: Hyperparameters, m: Multipliers, rotates: bool, freq_factors: FreqFactors | None
) -> Value:
    d = Decoder.read(p)
    sizes = None if all(d.has_attention) else Mamba2.read(p)
    rotation = rope(p, "normal", d.head_dim, freq_factors)
    layout = p.flags("attention.rope_pattern", d.num_layers) or [rotates] * d.num_layers
    windows = layer_windows(p, d.num_layers, period=1, size=0)
    feed_forward = mixture(g, p, scores="softmax", normalized=True)
    residual_scale = Scale(m.residuals)
    scale = p.number("attention.scale", 0.0) or None

    def mixer(layer: int, x: Value) -> Value:
        if sizes is None or d.has_attention[layer]:
            sinks = f"blk.{layer}.attn_sinks.weight"
            y = causal_attention(
                g,
                d,
                layer,
                rotation if layout[layer] else None,
                qkv(g, x, layer),
                scale=scale,
                window=windows[layer],
                sinks=sinks if sinks in g.shapes else "",
            )
        else:
            y = mamba2(g, d, sizes, layer, x)
        return g.op(residual_scale, y)

    result = pre_norm_decoder(
        g,
        d,
        mixer,
        lambda layer, x: g.op(residual_scale, feed_forward(layer, x)),
        embedding_scale=m.embeddings,
    )
    return g.op(Scale(1 / m.logits), result)
