"""The text part of Gemma 3: five layers with a window to one without; each kind has its own rotation."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.blocks import causal_attention, gemma_decoder, normed_qkv
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows

_LAYERS_OF_27B = 62


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d = Decoder.read(p)
    windows = layer_windows(p, d.num_layers, period=6, size=0)
    full = rope(p, "neox", d.head_dim, None, base=1e6)
    windowed = unscaled_rope(p, "neox", d.head_dim, _windowed_base(p))
    scale = d.width_per_head**-0.5 if d.num_layers == _LAYERS_OF_27B else None

    def attention(layer: int, x: Value) -> Value:
        window, q_k_v = windows[layer], normed_qkv(g, d, x, layer)
        rotation = windowed if window else full
        return causal_attention(g, d, layer, rotation, q_k_v, scale=scale, window=window)

    return gemma_decoder(g, d, attention, softcap=p.soft_cap("final_logit_softcapping", 0.0))


def _windowed_base(p: Hyperparameters) -> float:
    """Named in one way by llama.cpp and in another by Ollama."""
    return p.number("rope.freq_base_swa", p.number("rope.local.freq_base", 10000.0))
