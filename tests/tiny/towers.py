"""Tiny vision towers with random weights, as llama.cpp's converter makes them, and within the file of their
model as Ollama published them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.tiny.files import write_tiny
from tests.tiny.published import FORMS, TINIES, publish

Weights = dict[str, NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]

WIDTH, FFN, HEADS, LAYERS, PATCH = 32, 48, 2, 2, 14
COMMON = {
    "embedding_length": WIDTH,
    "feed_forward_length": FFN,
    "block_count": LAYERS,
    "attention.head_count": HEADS,
    "patch_size": PATCH,
    "num_channels": 3,
}
BOTH = ("weight", "bias")


@dataclass(frozen=True)
class Tower:
    """Values are those of `<architecture>.vision.` and `clip.vision.`, keys without that beginning."""

    kind: str
    shapes: Callable[[int], Shapes]
    """Of llama.cpp's names, for a model of that width; in numpy's order."""
    common: Mapping[str, Any]
    """In both forms, besides COMMON."""
    clip: Mapping[str, Any]
    """Whole keys that only llama.cpp's form has."""
    published: Mapping[str, Any] = field(default_factory=dict)
    """Those that only the other has."""
    absent: tuple[str, ...] = ()
    """Of COMMON, what the published form does not have."""
    names: tuple[tuple[str, str], ...] = ()
    """Parts of tensors' names: llama.cpp's, and the published ones."""
    rearrange: Callable[[Weights], Weights] = lambda weights: weights
    """Of llama.cpp's weights, what is published under the same names."""


def _blocks(names: Mapping[str, tuple[int, ...]], parts: tuple[str, ...] = BOTH) -> Shapes:
    shapes: Shapes = {}
    for layer in range(LAYERS):
        for name, shape in names.items():
            for part in parts:
                shapes[f"v.blk.{layer}.{name}.{part}"] = shape if part == "weight" else shape[:1]
    return shapes


_SQUARE = (WIDTH, WIDTH)
_SEPARATE: Shapes = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_out"), _SQUARE)
_PLAIN: Shapes = {"ffn_up": (FFN, WIDTH), "ffn_down": (WIDTH, FFN)}
_GATED: Shapes = _PLAIN | {"ffn_gate": (FFN, WIDTH)}
_NORMS: Shapes = {"ln1": (WIDTH,), "ln2": (WIDTH,)}
_CONVOLUTION = (WIDTH, 3, PATCH, PATCH)


def _gemma3(model_width: int) -> Shapes:
    exchanged: Shapes = {"ffn_down": (FFN, WIDTH), "ffn_up": (WIDTH, FFN)}  # as converters name them
    return _blocks(_SEPARATE | exchanged | _NORMS) | {
        "v.patch_embd.weight": _CONVOLUTION,
        "v.patch_embd.bias": (WIDTH,),
        "v.position_embd.weight": (64, WIDTH),
        "v.post_ln.weight": (WIDTH,),
        "v.post_ln.bias": (WIDTH,),
        "mm.input_projection.weight": (WIDTH, model_width),
        "mm.soft_emb_norm.weight": (WIDTH,),
    }


def _mistral3(model_width: int) -> Shapes:
    return _blocks(_SEPARATE | _GATED | _NORMS, ("weight",)) | {
        "v.patch_embd.weight": _CONVOLUTION,
        "v.pre_ln.weight": (WIDTH,),
        "mm.1.weight": (model_width, WIDTH),
        "mm.2.weight": (model_width, model_width),
        "mm.input_norm.weight": (WIDTH,),
        "mm.patch_merger.weight": (WIDTH, 4 * WIDTH),
        "v.token_embd.img_break": (model_width,),
    }


def _merger(model_width: int, norm: Shapes) -> Shapes:
    wide = 4 * WIDTH
    return norm | {
        "v.patch_embd.weight": _CONVOLUTION,
        "v.patch_embd.weight.1": _CONVOLUTION,
        "mm.0.weight": (wide, wide),
        "mm.0.bias": (wide,),
        "mm.2.weight": (model_width, wide),
        "mm.2.bias": (model_width,),
    }


def _qwen25vl(model_width: int) -> Shapes:
    blocks = _blocks(_SEPARATE | _GATED) | _blocks(_NORMS, ("weight",))
    return blocks | _merger(model_width, {"v.post_ln.weight": (WIDTH,)})


def _qwen3vl(model_width: int) -> Shapes:
    blocks = _blocks({"attn_qkv": (3 * WIDTH, WIDTH), "attn_out": _SQUARE} | _PLAIN | _NORMS)
    norm: Shapes = {f"v.post_ln.{part}": (WIDTH,) for part in BOTH}
    more: Shapes = {"v.patch_embd.bias": (WIDTH,), "v.position_embd.weight": (64, WIDTH)}
    return blocks | _merger(model_width, norm) | more


def _qwen3vl_deep(model_width: int) -> Shapes:
    """What layer 1 gives goes into the first of the model's, too."""
    wide = 4 * WIDTH
    deep: Shapes = {f"v.deepstack.1.norm.{part}": (wide,) for part in BOTH}
    for name, rows in (("fc1", wide), ("fc2", model_width)):
        deep |= {f"v.deepstack.1.{name}.weight": (rows, wide), f"v.deepstack.1.{name}.bias": (rows,)}
    return _qwen3vl(model_width) | deep


def _halves(weights: Weights) -> Weights:
    """Queries and keys whose halves rotate, where llama.cpp has neighbours; without a break of rows."""
    found = {name: weight for name, weight in weights.items() if "img_break" not in name}
    for name, weight in found.items():
        if name.endswith(("attn_q.weight", "attn_k.weight")):
            found[name] = weight.reshape(HEADS, -1, 2, WIDTH).swapaxes(1, 2).reshape(weight.shape)
    return found


def _apart(weights: Weights) -> Weights:
    """Queries, keys and values are three; patches of two frames are one, whose channels are rows."""
    found = {name: weight for name, weight in weights.items() if not name.startswith("v.patch_embd.weight")}
    for name in [name for name in found if "attn_qkv" in name]:
        for part, weight in zip("qkv", np.split(found.pop(name), 3), strict=True):
            found[name.replace("attn_qkv", f"attn_{part}")] = weight
    frames = [weights["v.patch_embd.weight"], weights["v.patch_embd.weight.1"]]
    both = np.stack(frames, axis=2).reshape(-1, 2, PATCH, PATCH)
    return found | {"v.patch_embd.weight": both.astype(np.float16)}


_HALF = [0.5, 0.5, 0.5]
_CLIP_MEAN, _CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
_QWEN3VL = Tower(
    "qwen3vl_merger",
    _qwen3vl,
    {"spatial_merge_size": 2, "attention.layer_norm_epsilon": 1e-6},
    {"clip.vision.image_mean": _HALF, "clip.vision.image_std": _HALF, "clip.use_gelu": True}
    | {"clip.vision.image_size": 8 * PATCH},
    absent=("feed_forward_length",),
    names=(
        ("v.post_ln", "v.merger.norm"),
        ("mm.0", "v.merger.linear_fc1"),
        ("mm.2", "v.merger.linear_fc2"),
        ("v.patch_embd", "v.patch_embed"),
        ("v.position_embd", "v.pos_embed"),
        ("v.deepstack.1.norm", "v.deepstack_merger.0.norm"),
        ("v.deepstack.1.fc", "v.deepstack_merger.0.linear_fc"),
        (".ffn_up", ".mlp.linear_fc1"),
        (".ffn_down", ".mlp.linear_fc2"),
        (".ln1", ".norm1"),
        (".ln2", ".norm2"),
    ),
    rearrange=_apart,
)
TOWERS = {
    "gemma3": Tower(
        "gemma3",
        _gemma3,
        {"image_size": 8 * PATCH, "attention.layer_norm_epsilon": 1e-6},
        {"clip.vision.image_mean": _HALF, "clip.vision.image_std": _HALF, "clip.use_gelu": True},
        names=(
            ("v.patch_embd", "v.patch_embedding"),
            ("v.position_embd", "v.position_embedding"),
            ("v.post_ln", "v.post_layernorm"),
            (".ln1", ".layer_norm1"),
            (".ln2", ".layer_norm2"),
            (".attn_out", ".attn_output"),
            (".ffn_down", ".mlp.fc1"),
            (".ffn_up", ".mlp.fc2"),
            ("mm.input_projection", "mm.mm_input_projection"),
            ("mm.soft_emb_norm", "mm.mm_soft_emb_norm"),
        ),
    ),
    "mistral3": Tower(
        "pixtral",
        _mistral3,
        {"image_size": 8 * PATCH},
        {"clip.vision.image_mean": _CLIP_MEAN, "clip.vision.image_std": _CLIP_STD, "clip.use_silu": True}
        | {"clip.vision.spatial_merge_size": 2, "clip.vision.attention.layer_norm_epsilon": 1e-5},
        {"mistral3.spatial_merge_size": 2},
        names=(
            ("v.patch_embd", "v.patch_conv"),
            ("v.pre_ln", "v.encoder_norm"),
            (".attn_out", ".attn_output"),
            (".ln1", ".attn_norm"),
            (".ln2", ".ffn_norm"),
            ("mm.1", "mm.linear_1"),
            ("mm.2", "mm.linear_2"),
            ("mm.patch_merger", "mm.patch_merger.merging_layer"),
            ("mm.input_norm", "mm.norm"),
        ),
        rearrange=_halves,
    ),
    "qwen25vl": Tower(
        "qwen2.5vl_merger",
        _qwen25vl,
        {"spatial_merge_size": 2, "window_size": 4 * PATCH, "attention.layer_norm_epsilon": 1e-6},
        {"clip.vision.image_mean": _CLIP_MEAN, "clip.vision.image_std": _CLIP_STD, "clip.use_silu": True}
        | {"clip.vision.image_size": 560, "clip.vision.n_wa_pattern": 2},
        {"qwen25vl.vision.fullatt_block_indexes": np.array([1], np.int32)},
        absent=("feed_forward_length",),
        names=(
            ("v.post_ln", "v.merger.ln_q"),
            ("mm.", "v.merger.mlp."),
            ("v.patch_embd.weight.1", "v.patch_embd_1.weight"),
            ("v.patch_embd.weight", "v.patch_embd_0.weight"),
        ),
    ),
    "qwen3vl": replace(
        _QWEN3VL,
        shapes=_qwen3vl_deep,
        published={"qwen3vl.vision.deepstack_visual_indexes": np.array([1], np.int32)},
    ),
    "qwen35": _QWEN3VL,
}
"""By the names of tests.tiny.published.FORMS."""


def write_seeing(directory: Path, name: str) -> tuple[tuple[Path, Path], Path]:
    """((a model, its projector) as llama.cpp's converter makes them, both in a file as it was published)."""
    tower, form = TOWERS[name], FORMS[name]
    tiny = TINIES[form.tiny]
    deep = {"n_deepstack_layers": 1} if tower.shapes is _qwen3vl_deep else {}
    tiny = replace(tiny, metadata=tiny.metadata | deep)
    model, projector = directory / "model.gguf", directory / "mmproj.gguf"
    write_tiny(model, tiny)
    weights = _weights(tower.shapes(tiny.width))
    _write_projector(projector, tower, weights, tiny.width)
    values = {key: value for key, value in (COMMON | tower.common).items() if key not in tower.absent}
    keys = {f"{form.architecture}.vision.{key}": value for key, value in values.items()}
    left_out = (*form.left_out, "n_deepstack_layers")
    added = {**form.added, **keys, **tower.published}
    form = replace(form, added=added, left_out=left_out, added_tensors=())
    published = {_renamed(key, tower.names): each for key, each in tower.rearrange(weights).items()}
    publish(model, directory / "published.gguf", form, published)
    return (model, projector), directory / "published.gguf"


def _renamed(tensor: str, names: tuple[tuple[str, str], ...]) -> str:
    for ours, theirs in names:
        if ours in tensor:
            return tensor.replace(ours, theirs)
    return tensor


def _weights(shapes: Shapes) -> Weights:
    rng = np.random.default_rng(0)
    weights: Weights = {}
    for name, shape in shapes.items():
        values = rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 0.1, shape)
        if "img_break" in name:
            values *= 0
        if any(norm in name for norm in ("ln", "norm")) and name.endswith("weight"):
            values += 1
        weights[name] = values.astype(np.float16).astype(np.float32)  # patches are published as half floats
    return weights


def _write_projector(path: Path, tower: Tower, weights: Weights, model_width: int) -> None:
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(tower.kind)
    values = {f"clip.vision.{key}": value for key, value in (COMMON | tower.common).items()}
    for key, value in (values | {"clip.vision.projection_dim": model_width} | dict(tower.clip)).items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    for name, weight in weights.items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
