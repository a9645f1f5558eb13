"""Layers behind the last one that predict further tokens (MTP): which of them a model keeps."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from puna.convert.models.config import Config
from puna.convert.models.family import Family
from puna.convert.models.names import place_of, plain_name
from puna.convert.models.sizes import num_layers, num_prediction_layers
from puna.convert.sources.header import SourceTensor

_APART = re.compile(r"(?:model\.)?mtp\.(layers\.0\.)?(([^.]+)\..+)")
"""Of several heads' layers the first, and what it has besides."""
_BESIDES = {
    "embed_tokens": "embed_tokens",
    "fc": "eh_proj",
    "norm": "shared_head.norm",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
}
_NEEDED = ("attn_norm", "attn_q", "nextn.eh_proj", "nextn.enorm", "nextn.hnorm")


def with_numbered_head(
    family: Family, config: Config, sources: Mapping[str, SourceTensor]
) -> Mapping[str, SourceTensor]:
    """By name, where a head that lies apart is the layer behind the last one. One that lacks parts stays
    where it is.
    """
    if not family.has_head_apart:
        return sources
    layer = num_layers(config)
    found = {_numbered(name, family, layer): tensor for name, tensor in sources.items()}
    names = {place.name for name in found if (place := place_of(name, family))}
    is_whole = all(f"blk.{layer}.{kind}.weight" in names for kind in _NEEDED)
    return found if is_whole and len(found) == len(sources) else sources


def _numbered(name: str, family: Family, layer: int) -> str:
    if not (found := _APART.fullmatch(plain_name(name, family))):
        return name
    in_layer, rest, first = found.groups()
    if not in_layer and first not in _BESIDES:
        return name
    inner = rest if in_layer else _BESIDES[first] + rest.removeprefix(first)
    return f"{family.layers}{layer}.{inner}"


def num_kept_heads(family: Family, config: Config, sources: Collection[str]) -> int:
    """Layers behind the others that predict further tokens. Some configurations count them where the files
    lack them. sources: names of tensors, with numbered heads.
    """
    first = num_layers(config)
    count = 1 if family.has_head_apart else num_prediction_layers(config) if family.has_more_layers else 0
    layers = range(first, first + count)
    found = {place.layer for name in sources if (place := place_of(name, family)) and "eh_proj" in place.name}
    return count if layers and found.issuperset(layers) else 0
