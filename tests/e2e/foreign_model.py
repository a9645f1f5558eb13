"""A tiny model of an architecture that llama.cpp runs and puna's own engine does not, with a tokenizer that
puna does not know, either: RWKV 7.
"""

from __future__ import annotations

from pathlib import Path

from tests.tiny.files import Tiny, write_tiny
from tests.tiny.layer_norm import LAYER_NORM
from tests.tiny.tensors.layers import Tensors

_RANK = 8
_TOKENIZER = b"gpt2"
_RANKS = ("decay", "iclr", "value_residual_mix", "gate")


def _layer(tiny: Tiny, _layer: int) -> Tensors:
    width = tiny.width
    norms = ("attn_norm", "attn_norm_2", "time_mix_ln")
    tensors: Tensors = {f"{norm}.{part}": (width,) for norm in norms for part in ("weight", "bias")}
    for name in "wavg":
        tensors[f"time_mix_{name}0.weight"] = (width,)
        tensors[f"time_mix_{name}1.weight"] = (_RANK, width)
        tensors[f"time_mix_{name}2.weight"] = (width, _RANK)
    del tensors["time_mix_g0.weight"]
    tensors |= {f"time_mix_{name}.weight": (width,) for name in ("k_k", "k_a", "r_k")}
    for name in ("key", "value", "receptance", "output"):
        tensors[f"time_mix_{name}.weight"] = (width, width)
    return tensors | {
        "time_mix_lerp_fused.weight": (6, 1, 1, width),
        "channel_mix_lerp_k.weight": (1, 1, width),
        "channel_mix_key.weight": (tiny.ffn, width),
        "channel_mix_value.weight": (width, tiny.ffn),
    }


RWKV7 = Tiny(
    "rwkv7",
    heads=0,
    tied=False,
    context=512,
    metadata=LAYER_NORM
    | {"wkv.head_size": 16, "token_shift_count": 2}
    | {f"attention.{name}_lora_rank": _RANK for name in _RANKS},
    layer_tensors=_layer,
    embedding_norm=True,
    norm_bias=True,
)


def write_foreign(path: Path, seed: int = 0) -> Path:
    write_tiny(path, RWKV7, seed=seed)
    content = path.read_bytes()
    assert content.count(_TOKENIZER) == 1
    path.write_bytes(content.replace(_TOKENIZER, b"rwkv"))
    return path
