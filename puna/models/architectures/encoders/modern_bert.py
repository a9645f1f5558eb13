"""ModernBERT: norms ahead of each half; of three layers one sees all of the text, others a window."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import Add, Embed
from puna.models.blocks import fused_qkv, gated_as_one, layer_norm
from puna.models.decoder import Decoder
from puna.models.encoder import Pooled, encoder_attention
from puna.models.hyperparameters import HyperparameterError, Hyperparameters, described
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows

_GATES = {"gelu": "gelu", "geglu": "gelu", "silu": "silu", "swiglu": "silu"}


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, pooled, activation = Decoder.read(p), Pooled(g, p), _activation(p)
    windows = layer_windows(p, d.num_layers, period=3, size=0, full_first=True)
    full = rope(p, "neox", d.head_dim, None)
    windowed = unscaled_rope(
        p, "neox", d.head_dim, p.number("rope.freq_base_swa", p.number("rope.freq_base", 10000.0))
    )
    x = layer_norm(g, d, g.op(Embed("token_embd")), "token_embd_norm")
    for layer in range(d.num_layers):
        block, window = f"blk.{layer}", windows[layer]
        has_norm = layer > 0 or f"{block}.attn_norm.weight" in g.shapes
        y = layer_norm(g, d, x, f"{block}.attn_norm") if has_norm else x
        q_k_v, rotation = fused_qkv(g, d, y, layer), windowed if window else full
        y = encoder_attention(g, d, f"{block}.attn_output", rotation, q_k_v, window=window)
        if layer == d.num_layers - 1:
            x, y = pooled.ahead(x, y)
        x = g.op(Add(), x, y)
        x = g.op(Add(), x, gated_as_one(g, layer_norm(g, d, x, f"{block}.ffn_norm"), block, activation))
    return pooled.finish(layer_norm(g, d, x, "output_norm"), activation="gelu")


def _activation(p: Hyperparameters) -> str:
    name = p.text("hidden_activation", "gelu")
    if name not in _GATES:
        raise HyperparameterError(f"metadata {p.key('hidden_activation')} is {described(name)}, not known")
    return _GATES[name]
