"""Qwen3.5's prediction head (MTP) as Ollama's converter wrote it before it ran llama.cpp.

Its tensors lie apart from the layers, as `mtp.*`. Those of its layer are as the model's, but some files have
matrices of each expert. The others have the names that the model was trained with, and their norms the
weights less 1 that it was trained with: Ollama's `convert/convert_qwen3next.go` added 1 where a name ends
with `_norm`, as those of the layer do. (Its `llama/compat/llama-ollama-compat.cpp`, which lists the names,
adds another 1 to these.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from puna.gguf.tensor_info import TensorInfo

_ARCHITECTURES = ("qwen35", "qwen35moe")
_HEADS, _FIRST = "mtp.", "mtp.layers.0."
_LAYERS = re.compile(r"mtp\.layers\.\d+\..+")
_ATTENTION = re.compile(r"blk\.(\d+)\.attn_q\.weight")
_BESIDES = {
    "fc": "eh_proj",
    "pre_fc_norm_embedding": "enorm",
    "pre_fc_norm_hidden": "hnorm",
    "norm": "shared_head_norm",
    "embed_tokens": "embed_tokens",
    "shared_head.head": "shared_head_head",
    "shared_head.norm": "shared_head_norm",
}
_OF_VOCABULARY = ("embed_tokens", "shared_head_head")
_NEEDED = ("eh_proj", "enorm", "hnorm")
_EXPERTS = {
    f"ffn_{kind}_exps.weight": f"mlp.experts.{{}}.{kind}_proj.weight" for kind in ("gate", "up", "down")
}
"""Of all, and of each, by its number."""


@dataclass(frozen=True, slots=True)
class PublishedHead:
    """How it is to be read: a layer behind the last one, as llama.cpp has it."""

    values: Mapping[str, int]
    """Of metadata."""
    tensors: Mapping[str, str]
    """What they are read by, by their names in the file or in `joined`."""
    joined: Mapping[str, Sequence[str]]
    """Names in the file of matrices that are to be one tensor, by its name."""
    plus_one: Sequence[str]
    """Names in the file of tensors whose values are to be read with 1 added."""


def published_head(metadata: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> PublishedHead | None:
    """None if the file has no whole one whose layer has the shapes of the model's own. Both: of the file."""
    architecture = metadata.get("general.architecture")
    if architecture not in _ARCHITECTURES or not any(name.startswith(_HEADS) for name in tensors):
        return None
    count = metadata.get(f"{architecture}.block_count")
    attending = [int(found[1]) for name in tensors if (found := _ATTENTION.fullmatch(name))]
    if not isinstance(count, int) or not attending or max(attending) >= count:
        return None
    is_taken = any(name.startswith(f"blk.{count}.") for name in tensors)
    if is_taken or f"{architecture}.nextn_predict_layers" in metadata:
        return None
    joined = _joined_experts(tensors, max(attending))
    layer = _layer(tensors, max(attending), joined)
    besides = _besides(tensors)
    if layer is None or besides is None:
        return None
    names = {old: f"blk.{count}.{new}" for old, new in (layer | besides).items()}
    values = {f"{architecture}.block_count": count + 1, f"{architecture}.nextn_predict_layers": 1}
    norms = [old for old, new in besides.items() if new.endswith("norm.weight")]
    return PublishedHead(values, names, joined, norms)


def _layer(
    tensors: Mapping[str, TensorInfo], model_layer: int, joined: Mapping[str, Sequence[str]]
) -> dict[str, str] | None:
    """Names in a layer, by those in the file or in `joined`; None if it is not as the model's."""
    begin = f"blk.{model_layer}."
    expected = {name.removeprefix(begin): each for name, each in tensors.items() if name.startswith(begin)}
    matrices = {matrix for each in joined.values() for matrix in each}
    own = {name for name in tensors if name.startswith(_FIRST) and name not in matrices}
    found = {f"{_FIRST}{name}": name for name in expected}
    if not found or own | joined.keys() != found.keys():
        return None
    for old in own:
        if not tensors[old].num_bytes or tensors[old].shape != expected[found[old]].shape:
            return None
    return found


def _joined_experts(tensors: Mapping[str, TensorInfo], model_layer: int) -> dict[str, list[str]]:
    """Of each kind of matrix those of all experts, if they are alike and as many as the model's."""
    joined = {}
    for name, pattern in _EXPERTS.items():
        model = tensors.get(f"blk.{model_layer}.{name}")
        if model is None or len(model.shape) != 3 or _FIRST + name in tensors:
            continue
        if model.shape[2] > len(tensors):
            continue
        matrices = [tensors.get(_FIRST + pattern.format(number)) for number in range(model.shape[2])]
        kinds = {(matrix.type, matrix.shape, matrix.num_bytes > 0) for matrix in matrices if matrix}
        if all(matrices) and len(kinds) == 1 and kinds.pop()[1:] == (model.shape[:2], True):
            joined[_FIRST + name] = [matrix.name for matrix in matrices if matrix]
    return joined


def _besides(tensors: Mapping[str, TensorInfo]) -> dict[str, str] | None:
    """Names in a layer of what no layer of the model has, by those in the file; None if something is missing,
    of another shape, or not known.
    """
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        return None
    width = embedding.shape[0]
    shapes = {"eh_proj": (2 * width, width)} | dict.fromkeys(_OF_VOCABULARY, embedding.shape)
    found: dict[str, str] = {}
    for name, tensor in tensors.items():
        if not name.startswith(_HEADS) or _LAYERS.fullmatch(name):
            continue
        kind = _BESIDES.get(name.removeprefix(_HEADS).removesuffix(".weight"))
        if kind is None or tensor.shape != shapes.get(kind, (width,)) or not tensor.num_bytes:
            return None
        if kind.endswith("norm") and tensor.type != "F32":
            return None
        if (new := f"nextn.{kind}.weight") in found.values():
            return None
        found[name] = new
    is_whole = all(f"nextn.{kind}.weight" in found.values() for kind in _NEEDED)
    return found if is_whole else None
