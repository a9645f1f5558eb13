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
    "visual.",
    "model.visual.",
    "vision_tower.",
    "model.vision_tower.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
)
_COMPUTED = (
    ".rotary_emb.inv_freq",
    ".attention.masked_bias",
    ".attention.bias",
    ".attn.masked_bias",
    ".attn.bias",
)
"""What other programs stored that can be computed."""

_IN_LAYER = re.compile(r"(\d{1,4})\.(.+)")
_OLD_ENDINGS = {"gamma": "weight", "beta": "bias"}
"""Of BERT's first files."""
_WITHOUT_ENDING = ("ssm_a", "ssm_d")
_EXPERT = re.compile(r"(.+\.experts)\.(\d{1,4})\.(.+)")


class Place(NamedTuple):
    """Where a tensor belongs."""

    name: str
    """GGUF's, with its ending."""
    kind: str
    """GGUF's, without layer and ending; or a key of the family's parts."""
    layer: int | None = None
    expert: int | None = None
    """Of a tensor that has one expert's values; GGUF has all of a layer in one."""


def is_left_out(name: str, family: Family, num_layers: int) -> bool:
    """Whether nothing that the engine runs needs it. num_layers: those that predict further tokens, too."""
    plain = plain_name(name, family)
    if not family.has_output and plain == "lm_head.weight":
        return True
    if plain.startswith(family.left_out) or plain.endswith(family.left_out_endings):
        return True
    layer = _IN_LAYER.fullmatch(plain.removeprefix(family.layers))
    if family.has_more_layers and layer and int(layer[1]) >= num_layers:
        return True
    return name.startswith(_OF_IMAGES) or name.endswith(_COMPUTED)


def plain_name(name: str, family: Family) -> str:
    """Without what models that also see, and the family's files, put before it."""
    for prefix, plain in (*_PREFIXES, *((prefix, "") for prefix in family.prefixes)):
        if name.startswith(prefix):
            return plain + name.removeprefix(prefix)
    return name


def place_of(name: str, family: Family) -> Place | None:
    """None: no such tensor is known. Experts' names may lack an ending."""
    plain = plain_name(name, family)
    plain = re.sub(r"(_correction|_proj)_bias$", r"\1.bias", plain).replace(".dt_bias", ".dt_proj.bias")
    plain = re.sub(r"\.expert_bias$", ".expert_bias.bias", plain)
    stem, dot, ending = plain.rpartition(".")
    if ending in _OLD_ENDINGS:
        ending = _OLD_ENDINGS[ending]
    elif ending not in ("weight", "bias"):
        stem, dot, ending = plain, ".", "weight"
    if (kind := family.global_names.get(stem)) is not None:
        return Place(kind + dot + ending, kind)
    layer = _IN_LAYER.fullmatch(stem.removeprefix(family.layers))
    if layer is None or not stem.startswith(family.layers):
        return None
    number, inner = int(layer[1]), layer[2]
    expert = None
    if found := _EXPERT.fullmatch(inner):
        inner, expert = f"{found[1]}.{found[3]}", int(found[2])
    if (kind := family.layer_names.get(inner)) is None:
        return None
    if kind in _WITHOUT_ENDING:
        dot = ending = ""
    return Place(f"blk.{number}.{kind}{dot}{ending}", kind, number, expert)
