"""Names of tensors in safetensors, taken apart and said in GGUF's words."""

from __future__ import annotations

import re
from typing import NamedTuple

from puna.convert.models.family import Family

_PREFIXES = (
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),
    ("language_model.", ""),
)
"""Of models that also see."""
_OF_IMAGES = (
    "vision_tower.",
    "model.vision_tower.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
)
_COMPUTED = (".rotary_emb.inv_freq", ".attention.masked_bias", ".attention.bias")
"""What other programs stored that can be computed."""

_GLOBAL = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "model.embedding_norm": "token_embd_norm",
    "lm_head": "output",
}
_IN_LAYER = re.compile(r"model\.layers\.(\d{1,4})\.(.+)")
_EXPERT = re.compile(r"(.+\.experts)\.(\d{1,4})\.(.+)")


class Place(NamedTuple):
    """Where a tensor belongs."""

    name: str
    """GGUF's, with its ending."""
    layer: int | None = None
    expert: int | None = None
    """Of a tensor that has one expert's values; GGUF has all of a layer in one."""


def is_left_out(name: str, family: Family) -> bool:
    """Whether nothing that the engine runs needs it."""
    if not family.has_output and plain_name(name) == "lm_head.weight":
        return True
    return name.startswith(_OF_IMAGES) or name.endswith(_COMPUTED)


def plain_name(name: str) -> str:
    """Without what models that also see put before it."""
    for prefix, plain in _PREFIXES:
        if name.startswith(prefix):
            return plain + name.removeprefix(prefix)
    return name


def place_of(name: str, family: Family) -> Place | None:
    """None: no such tensor is known. Experts' names may lack an ending."""
    stem, dot, ending = plain_name(name).rpartition(".")
    if ending not in ("weight", "bias"):
        stem, dot, ending = plain_name(name), ".", "weight"
    if stem in _GLOBAL:
        return Place(_GLOBAL[stem] + dot + ending)
    if not (layer := _IN_LAYER.fullmatch(stem)):
        return None
    number, inner = int(layer[1]), layer[2]
    expert = None
    if found := _EXPERT.fullmatch(inner):
        inner, expert = f"{found[1]}.{found[3]}", int(found[2])
    if inner not in family.layer_names:
        return None
    return Place(f"blk.{number}.{family.layer_names[inner]}{dot}{ending}", number, expert)
