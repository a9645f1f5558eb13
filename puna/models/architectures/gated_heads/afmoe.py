"""Trinity (AFM with experts): gated attention, norms on both sides; only layers with a window rotate."""

from __future__ import annotations

import math

from puna.graph import Tracer, Value
from puna.graph.ops import Embed, Linear, Scale
from puna.models.blocks import causal_attention, normed_qkv, sandwich_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "neox", d.head_dim, None)
    windows = layer_windows(p, d.num_layers, period=4, size=0)

    def attention(layer: int, x: Value) -> Value:
        gate = g.op(Linear(f"blk.{layer}.attn_gate"), x)
        rotates = (layer + 1) % 4 != 0
        return causal_attention(
            g,
            d,
            layer,
            rotation if rotates else None,
            normed_qkv(g, d, x, layer),
            window=windows[layer],
            gate=gate,
        )

    feed_forward = mixture(g, p, scores="sigmoid", normalized=False)
    x = g.op(Scale(math.sqrt(d.width)), g.op(Embed("token_embd")))
    return sandwich_decoder(g, d, x, attention, feed_forward)
