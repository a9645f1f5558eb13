"""Projectors as Ollama published them: within the file of their model, or without saying what they are.

llama.cpp takes a projector as a file of its own, with the names that its converter gives. What differs is
listed in Ollama's `llama/compat/llama-ollama-compat.cpp`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from puna.gguf.errors import GgufError
from puna.gguf.metadata import Metadata
from puna.gguf.writer import GgufValue, array, boolean, uint32

_HALF = (0.5, 0.5, 0.5)
_CLIP_MEAN, _CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

Values = dict[str, GgufValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Of an architecture whose files have a projector."""

    kind: str
    kind_key: str = "clip.projector_type"
    read_as: str = ""
    """The architecture as the rest of puna sees it, if that is another one; see puna.gguf.published."""
    mean: tuple[float, ...] = _HALF
    std: tuple[float, ...] = _HALF
    values: Callable[[Metadata], Values] = lambda _: {}
    """Besides what every dialect has; only where the file does not have them itself."""
    renames: tuple[tuple[str, str], ...] = ()
    """Parts of tensors' names."""
    floats: tuple[str, ...] = ("v.patch_embd.weight",)
    """Tensors, by their new names, that llama.cpp's converter leaves as F32."""
    halves_rotate: bool = False
    """Of queries and keys, the halves of a head rotate, where llama.cpp has neighbours."""
    is_split: bool = False
    """Queries, keys and values are three tensors where llama.cpp has one; patches of two frames are one
    tensor where it has two.
    """
    zeros: Mapping[str, str] = field(default_factory=dict)
    """Vectors that are missing, and the key that says how long they are."""

    def name_of(self, tensor: str, metadata: Metadata) -> str:
        if found := _DEEP.fullmatch(tensor):
            return f"v.deepstack.{_deep_layer(int(found[1]), metadata)}.{found[2]}.{found[3]}"
        for old, new in self.renames:
            tensor = tensor.replace(old, new)
        return tensor


_DEEP = re.compile(r"v\.deepstack_merger\.(\d{1,4})\.(?:linear_)?(\w+)\.(\w+)")


def _deep_layer(number: int, metadata: Metadata) -> int:
    """Whose output goes into the model, too: they are counted, where llama.cpp has the layer's own number."""
    layers = metadata.get(f"{metadata['general.architecture']}.vision.deepstack_visual_indexes")
    if not isinstance(layers, np.ndarray) or layers.dtype.kind not in "iu" or number >= layers.size:
        raise GgufError(f"{metadata.name}: no layer is told for v.deepstack_merger.{number}")
    return int(layers.flat[number])


def _qwen3vl(metadata: Metadata) -> Values:
    """Sizes are those of tensors."""
    values = {
        "clip.use_gelu": boolean(True),
        "clip.vision.attention.layer_norm_epsilon": GgufValue("float32", 1e-6),
    }
    architecture, tensors = metadata["general.architecture"], metadata.tensors
    if (up := tensors.get("v.blk.0.mlp.linear_fc1.weight")) is not None:
        values["clip.vision.feed_forward_length"] = uint32(up.shape[-1])
    patch = metadata.get(f"{architecture}.vision.patch_size")
    if (positions := tensors.get("v.pos_embed.weight")) is not None and isinstance(patch, int):
        values["clip.vision.image_size"] = uint32(math.isqrt(positions.shape[-1]) * patch & 0xFFFFFFFF)
    return values


def _gemma4(_: Metadata) -> Values:
    return {"clip.vision.image_size": uint32(224)}


def _qwen25vl(metadata: Metadata) -> Values:
    values = {"clip.use_silu": boolean(True), "clip.vision.image_size": uint32(560)}
    if (up := metadata.tensors.get("v.blk.0.ffn_up.weight")) is not None:
        values["clip.vision.feed_forward_length"] = uint32(up.shape[-1])
    whole = metadata.get("qwen25vl.vision.fullatt_block_indexes")
    pattern = (
        int(whole[0]) + 1 if isinstance(whole, np.ndarray) and whole.dtype.kind in "iu" and whole.size else 8
    )
    return values | {"clip.vision.n_wa_pattern": uint32(max(pattern, 1))}


def _mistral3(metadata: Metadata) -> Values:
    values = {
        "clip.use_silu": boolean(True),
        "clip.vision.attention.layer_norm_epsilon": GgufValue("float32", 1e-5),
    }
    merged = metadata.get("mistral3.spatial_merge_size")
    return values | ({"clip.vision.spatial_merge_size": uint32(merged)} if isinstance(merged, int) else {})


_QWEN3VL = Dialect(
    kind="qwen3vl_merger",
    values=_qwen3vl,
    renames=(
        ("v.pos_embed", "v.position_embd"),
        ("v.patch_embed", "v.patch_embd"),
        ("v.merger.norm", "v.post_ln"),
        ("v.merger.linear_fc1", "mm.0"),
        ("v.merger.linear_fc2", "mm.2"),
        (".mlp.linear_fc1", ".ffn_up"),
        (".mlp.linear_fc2", ".ffn_down"),
        (".norm1", ".ln1"),
        (".norm2", ".ln2"),
    ),
    floats=("v.position_embd.weight",),
    is_split=True,
)
DIALECTS = {
    "gemma3": Dialect(
        kind="gemma3",
        values=lambda _: {"clip.use_gelu": boolean(True)},
        renames=(
            ("v.patch_embedding", "v.patch_embd"),
            ("v.position_embedding", "v.position_embd"),
            ("v.post_layernorm", "v.post_ln"),
            (".layer_norm1", ".ln1"),
            (".layer_norm2", ".ln2"),
            (".attn_output", ".attn_out"),
            (".mlp.fc1", ".ffn_down"),  # so it is: llama.cpp knows files whose names are exchanged
            (".mlp.fc2", ".ffn_up"),
            ("mm.mm_input_projection", "mm.input_projection"),
            ("mm.mm_soft_emb_norm", "mm.soft_emb_norm"),
        ),
        floats=("v.patch_embd.weight", "v.position_embd.weight"),
    ),
    "gemma4": Dialect(
        kind="gemma4v",
        kind_key="clip.vision.projector_type",
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
        values=_gemma4,
    ),
    "mistral3": Dialect(
        kind="pixtral",
        mean=_CLIP_MEAN,
        std=_CLIP_STD,
        values=_mistral3,
        renames=(
            ("v.patch_conv", "v.patch_embd"),
            ("v.encoder_norm", "v.pre_ln"),
            (".attn_output", ".attn_out"),
            (".attn_norm", ".ln1"),
            (".ffn_norm", ".ln2"),
            ("mm.linear_1", "mm.1"),
            ("mm.linear_2", "mm.2"),
            ("mm.patch_merger.merging_layer", "mm.patch_merger"),
            ("mm.norm", "mm.input_norm"),
        ),
        halves_rotate=True,
        zeros={"v.token_embd.img_break": "mistral3.embedding_length"},
    ),
    **dict.fromkeys(("qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"), _QWEN3VL),
    "qwen25vl": Dialect(
        kind="qwen2.5vl_merger",
        read_as="qwen2vl",
        mean=_CLIP_MEAN,
        std=_CLIP_STD,
        values=_qwen25vl,
        renames=(
            ("v.merger.ln_q.", "v.post_ln."),
            ("v.merger.mlp.", "mm."),
            ("v.patch_embd_0.weight", "v.patch_embd.weight"),
            ("v.patch_embd_1.weight", "v.patch_embd.weight.1"),
        ),
        floats=("v.patch_embd.weight", "v.patch_embd.weight.1"),
    ),
}
"""By the architecture's name in the file."""
ARCHITECTURES = frozenset(dialect.read_as or name for name, dialect in DIALECTS.items())
_COPIED = (
    *("block_count", "embedding_length", "feed_forward_length", "image_size", "patch_size", "num_channels"),
    *("spatial_merge_size", "window_size", "attention.head_count", "attention.layer_norm_epsilon"),
)


def clip_values(metadata: Metadata, dialect: Dialect) -> Values:
    """Of the projector of a model's file."""
    architecture = metadata["general.architecture"]
    keys = {f"clip.vision.{key}": f"{architecture}.vision.{key}" for key in _COPIED}
    keys["clip.vision.projection_dim"] = f"{architecture}.embedding_length"
    return {
        "general.architecture": GgufValue("string", "clip"),
        "general.type": GgufValue("string", "mmproj"),
        "clip.has_vision_encoder": boolean(True),
        dialect.kind_key: GgufValue("string", dialect.kind),
        "clip.vision.image_mean": array("float32", dialect.mean),
        "clip.vision.image_std": array("float32", dialect.std),
        **dialect.values(metadata),
        **{
            key: GgufValue(metadata.info(old).type, metadata[old])
            for key, old in keys.items()
            if old in metadata and metadata.info(old).type not in ("array", "string")
        },
    }
