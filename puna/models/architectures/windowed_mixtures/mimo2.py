"""MiMo V2: sinks, experts, values narrower than keys; layers with a window have heads of their own."""

from __future__ import annotations

from puna.graph import GraphError, Tracer, Value
from puna.graph.ops import Columns, Concat, Linear, Scale
from puna.models.blocks import causal_attention, experts, gated, pre_norm_decoder, qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import moe
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    layers = Decoder.read_layers(p, has_own_values=True)
    head_dim = layers[0].head_dim
    value_dim = p.integer("attention.value_length", head_dim, maximum=head_dim)
    windows = layer_windows(p, layers[0].num_blocks, period=4, size=0)
    windowed = unscaled_rope(p, "neox", head_dim, p.number("rope.freq_base_swa", 10000.0), suffix="_swa")
    rotation, scale = rope(p, "neox", head_dim, None), p.multiplier("attention.value_scale")

    def attention(layer: int, x: Value) -> Value:
        d, sinks = layers[layer], f"blk.{layer}.attn_sinks.weight"
        y = causal_attention(
            g,
            d,
            layer,
            windowed if windows[layer] else rotation,
            _projected(g, d, value_dim, layer, x),
            window=windows[layer],
            sinks=sinks if sinks in g.shapes else "",
            value_dim=value_dim,
        )
        return g.op(Scale(scale), y) if scale != 1.0 else y

    def feed_forward(layer: int, x: Value) -> Value:
        block = f"blk.{layer}"
        if f"{block}.ffn_gate_inp.weight" not in g.shapes:
            return gated(g, x, block, "silu")
        return experts(g, x, moe(p, block, scores="sigmoid", normalized=True))

    return pre_norm_decoder(g, layers[0], attention, feed_forward)


def _projected(g: Tracer, d: Decoder, value_dim: int, layer: int, x: Value) -> tuple[Value, Value, Value]:
    """q, k and v; values are kept as wide as keys, with zeros."""
    name, heads, missing = f"blk.{layer}.attn_qkv", d.num_kv_heads, d.head_dim - value_dim
    if f"{name}.weight" in g.shapes:
        mixed, begin = g.op(Linear(name), x), 0
        sizes = (d.num_heads * d.head_dim, heads * d.head_dim, heads * value_dim)
        if mixed.width != sum(sizes):
            raise GraphError(
                f"tensor {name}.weight has {mixed.width} rows where the model needs {sum(sizes)}"
            )
        parts = []
        for size in sizes:
            parts.append(g.op(Columns(begin, size, mixed.width), mixed))
            begin += size
        q, k, v = parts
    else:
        q, k, v = qkv(g, x, layer)
    if missing:
        nothing = g.op(Scale(0.0), g.op(Columns(0, missing, d.head_dim), k))
        v = g.op(Concat(heads), v, nothing)
    return q, k, v
