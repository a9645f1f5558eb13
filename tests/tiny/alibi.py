"""Models without rotation, whose scores fall with distance."""

from __future__ import annotations

from tests.tiny.files import Tiny
from tests.tiny.layer_norm import LAYER_NORM, with_norm_biases
from tests.tiny.tensors import layers

DEEP = {"width": 64, "heads": 4, "kv_heads": 4, "ffn": 32, "tied": False, "embedding_scale": 3.0}

ALIBI = {
    "bloom": with_norm_biases(
        "bloom",
        kv_heads=6,
        embedding_norm=True,
        layer_tensors=layers.fused,
    ),
    "mpt": Tiny(
        "mpt",
        kv_heads=6,
        metadata=LAYER_NORM | {"attention.max_alibi_bias": 8.0, "attention.clamp_kqv": 1.2},
        layer_tensors=layers.mpt,
        ffn_scale=0.03,
    ),
    "mpt-positions": with_norm_biases(
        "mpt",
        kv_heads=6,
        positions=True,
        layer_tensors=layers.fused,
    ),
    "jais": with_norm_biases(
        "jais",
        kv_heads=6,
        tied=False,
        metadata={"attention.max_alibi_bias": 8.0},
        layer_tensors=layers.jais,
        ffn_scale=1.0,
    ),
    "refact": Tiny("refact", kv_heads=1),
    # llama.cpp tells the two by their numbers of layers.
    "baichuan-7b": Tiny("baichuan", layers=32, **DEEP),
    "baichuan-13b": Tiny("baichuan", layers=40, layer_tensors=layers.fused_without_biases, **DEEP),
}
