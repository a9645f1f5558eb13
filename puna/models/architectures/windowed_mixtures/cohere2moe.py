"""Command A with experts: both halves of a layer read the same norm; layers with windows rotate, and those
without experts.
"""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Scale
from puna.models.blocks import causal_attention, layer_norm, norm, parallel_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors, rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    rotation = rope(p, "normal", d.head_dim, freq_factors)
    windows = layer_windows(p, d.num_layers, period=4, size=0, full_first=True)
    num_dense = p.integer("leading_dense_block_count", minimum=0)
    mixed = mixture(g, p, scores="sigmoid", normalized=False)

    def attention(layer: int, x: Value) -> Value:
        rotates = windows[layer] > 0 or layer < num_dense
        turn = rotation if rotates else None
        return causal_attention(g, d, layer, turn, qkv(g, x, layer), window=windows[layer])

    def feed_forward(layer: int, x: Value) -> Value:
        """The mean of what chosen experts give and what the shared one does."""
        y = mixed(layer, x)
        return g.op(Scale(0.5), y) if f"blk.{layer}.ffn_up_shexp.weight" in g.shapes else y

    result = parallel_decoder(
        g,
        d,
        attention,
        feed_forward,
        mixer_norm="attn_norm",
        ffn_norm="attn_norm",
        normalize=norm if p.has("attention.layer_norm_rms_epsilon") else layer_norm,
    )
    return g.op(Scale(p.multiplier("logit_scale")), result)
