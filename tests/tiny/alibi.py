"""Models without rotation, whose scores fall with distance."""

from __future__ import annotations

from tests.tiny import layers
from tests.tiny.files import Tiny
from tests.tiny.layer_norm import LAYER_NORM

DEEP = {"width": 64, "heads": 4, "kv_heads": 4, "ffn": 32, "tied": False, "embedding_scale": 3.0}

ALIBI = {
    "bloom": Tiny(
        "bloom",
        kv_heads=6,
        embedding_norm=True,
        metadata=LAYER_NORM,
        layer_tensors=layers.fused,
        norm_bias=True,
        ffn_scale=0.03,
    ),
    "mpt": Tiny(
        "mpt",
        kv_heads=6,
        metadata=LAYER_NORM | {"attention.max_alibi_bias": 8.0, "attention.clamp_kqv": 1.2},
        layer_tensors=layers.mpt,
        ffn_scale=0.03,
    ),
    "mpt-positions": Tiny(
        "mpt",
        kv_heads=6,
        positions=True,
        metadata=LAYER_NORM,
        layer_tensors=layers.fused,
        norm_bias=True,
        ffn_scale=0.03,
    ),
    "jais": Tiny(
        "jais",
        kv_heads=6,
        tied=False,
        metadata=LAYER_NORM | {"attention.max_alibi_bias": 8.0},
        layer_tensors=layers.jais,
        norm_bias=True,
    ),
    "refact": Tiny("refact", kv_heads=1),
    # llama.cpp tells the two by their numbers of layers.
    "baichuan-7b": Tiny("baichuan", layers=32, **DEEP),
    "baichuan-13b": Tiny("baichuan", layers=40, layer_tensors=layers.fused_without_biases, **DEEP),
}
