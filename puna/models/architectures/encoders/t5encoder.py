"""The encoder of T5: scores know how far tokens are apart, by ranges that all layers share."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed, Linear
from puna.models.blocks import gated, norm, two_layers
from puna.models.decoder import Decoder
from puna.models.encoder import Pooled, encoder_attention
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, pooled = Decoder.read(p), Pooled(g, p)
    x = g.op(Embed("token_embd"))
    for layer in range(d.num_layers):
        block = f"enc.blk.{layer}"
        y = norm(g, d, x, f"{block}.attn_norm")
        q, k, v = (g.op(Linear(f"{block}.attn_{part}"), y) for part in "qkv")
        own = f"{block}.attn_rel_b.weight"
        buckets = own if own in g.shapes else "enc.blk.0.attn_rel_b.weight"
        y = encoder_attention(g, d, f"{block}.attn_o", None, (q, k, v), scale=1.0, buckets=buckets)
        if layer == d.num_layers - 1:
            x, y = pooled.ahead(x, y)
        x = g.op(Add(), x, y)
        x = g.op(Add(), x, _feed_forward(g, norm(g, d, x, f"{block}.ffn_norm"), block))
    return pooled.finish(norm(g, d, x, "enc.output_norm"))


def _feed_forward(g: Tracer, x: Value, block: str) -> Value:
    """Gated since T5 1.1."""
    if f"{block}.ffn_gate.weight" in g.shapes:
        return gated(g, x, block, "gelu")
    return two_layers(g, x, block, "relu")
