"""Tiny models of architectures that llama.cpp runs and puna's own engine does not."""

from __future__ import annotations

from pathlib import Path

from tests.tiny.files import Tiny, write_tiny
from tests.tiny.layer_norm import LAYER_NORM
from tests.tiny.layers import Tensors


def _jais_layer(tiny: Tiny, _layer: int) -> Tensors:
    width, ffn = tiny.width, tiny.ffn
    shapes = {
        "attn_qkv": (3 * width, width),
        "attn_output": (width, width),
        "ffn_gate": (ffn, width),
        "ffn_up": (ffn, width),
        "ffn_down": (width, ffn),
    }
    of_layer: Tensors = {}
    for name, shape in shapes.items():
        of_layer |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for name in ("attn_norm", "ffn_norm"):
        of_layer |= {f"{name}.{part}": (width,) for part in ("weight", "bias")}
    return of_layer


JAIS = Tiny(
    "jais",
    kv_heads=6,
    tied=False,
    context=512,
    metadata=LAYER_NORM | {"attention.max_alibi_bias": 8.0},
    layer_tensors=_jais_layer,
    norm_bias=True,
)


def write_jais(path: Path, seed: int = 0) -> Path:
    return write_tiny(path, JAIS, seed=seed)
