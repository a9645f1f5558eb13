"""A tiny projector with random weights: a vision tower as in LLaVA 1.5, written as llama.cpp has it."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

_WIDTH, _FFN, _HEADS, _LAYERS = 32, 48, 2, 3
_IMAGE, _PATCH = 28, 14
NUM_TOKENS = (_IMAGE // _PATCH) ** 2
"""Of each image."""


def write_projector(path: Path, model_width: int = 96, seed: int = 0) -> Path:
    """For a model of that width."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_file_type(0)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("mlp")
    writer.add_vision_image_size(_IMAGE)
    writer.add_vision_patch_size(_PATCH)
    writer.add_vision_embedding_length(_WIDTH)
    writer.add_vision_feed_forward_length(_FFN)
    writer.add_vision_block_count(_LAYERS)
    writer.add_vision_head_count(_HEADS)
    writer.add_vision_attention_layernorm_eps(1e-5)
    writer.add_vision_projection_dim(model_width)
    writer.add_vision_image_mean([0.5, 0.5, 0.5])
    writer.add_vision_image_std([0.5, 0.5, 0.5])
    rng = np.random.default_rng(seed)
    for name, shape in _tensors(model_width).items():
        scale = 1 / np.sqrt(shape[-1]) if len(shape) > 1 else 0.1
        values = rng.normal(0, scale, shape) + (1 if "ln" in name and name.endswith("weight") else 0)
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(model_width: int) -> dict[str, tuple[int, ...]]:
    """Name -> shape in numpy order."""
    shapes: dict[str, tuple[int, ...]] = {
        "v.class_embd": (_WIDTH,),
        "v.patch_embd.weight": (_WIDTH, 3, _PATCH, _PATCH),
        "v.position_embd.weight": (NUM_TOKENS + 1, _WIDTH),
        "mm.0.weight": (model_width, _WIDTH),
        "mm.0.bias": (model_width,),
        "mm.2.weight": (model_width, model_width),
        "mm.2.bias": (model_width,),
    }
    matrices = {
        **dict.fromkeys(["attn_q", "attn_k", "attn_v", "attn_out"], (_WIDTH, _WIDTH)),
        "ffn_up": (_FFN, _WIDTH),
        "ffn_down": (_WIDTH, _FFN),
    }
    norms = ["v.pre_ln"]
    for layer in range(_LAYERS):
        for name, shape in matrices.items():
            shapes[f"v.blk.{layer}.{name}.weight"] = shape
            shapes[f"v.blk.{layer}.{name}.bias"] = shape[:1]
        norms += [f"v.blk.{layer}.ln1", f"v.blk.{layer}.ln2"]
    for name in norms:
        shapes |= {f"{name}.weight": (_WIDTH,), f"{name}.bias": (_WIDTH,)}
    return shapes
