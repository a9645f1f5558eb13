"""EmbeddingGemma: Gemma 3's layers, whose tokens see the whole text, or a window around them."""

from __future__ import annotations

import math

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed, Linear, Scale
from puna.models.blocks import gated, norm, normed_qkv
from puna.models.decoder import Decoder
from puna.models.encoder import Pooled, encoder_attention
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, pooled = Decoder.read(p), Pooled(g, p)
    windows = layer_windows(p, d.num_layers, period=6, size=0)
    full = rope(p, "neox", d.head_dim, None, base=1e6)
    windowed = unscaled_rope(p, "neox", d.head_dim, p.number("rope.freq_base_swa", 10000.0))
    x = g.op(Scale(math.sqrt(d.width)), g.op(Embed("token_embd")))
    for layer in range(d.num_layers):
        block, window = f"blk.{layer}", windows[layer]
        q_k_v = normed_qkv(g, d, norm(g, d, x, f"{block}.attn_norm"), layer)
        rotation = windowed if window else full
        y = encoder_attention(g, d, f"{block}.attn_output", rotation, q_k_v, window=window)
        if layer == d.num_layers - 1:
            x, y = pooled.ahead(x, y)
        x = g.op(Add(), x, norm(g, d, y, f"{block}.post_attention_norm"))
        y = gated(g, norm(g, d, x, f"{block}.ffn_norm"), block, "gelu")
        x = g.op(Add(), x, norm(g, d, y, f"{block}.post_ffw_norm"))
    return _dense(g, pooled.finish(norm(g, d, x, "output_norm")))


def _dense(g: Tracer, x: Value) -> Value:
    """Two matrices behind the pooling, if the file has them."""
    for name in ("dense_2", "dense_3"):
        if f"{name}.weight" in g.shapes:
            x = g.op(Linear(name), x)
    g.hidden = x
    return x
