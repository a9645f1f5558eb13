"""Tiny files in the forms that Ollama published."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.tiny import TINY, write_tiny
from tests.tiny.encoders import ENCODERS

WIDE = replace(TINY["qwen3vl"], head_dim=128, metadata={"rope.dimension_sections": [24, 20, 20, 0]})
"""With the one rotation that files leave out."""
MORE = {"tokenizer.ggml.tokens": "<image>", "tokenizer.ggml.token_type": 3}
"""What further tokens are."""
INT = gguf.GGUFValueType.INT32
TYPES = {
    str: gguf.GGUFValueType.STRING,
    int: gguf.GGUFValueType.UINT32,
    float: gguf.GGUFValueType.FLOAT32,
}


@dataclass(frozen=True)
class Form:
    """How a tiny file is rewritten."""

    tiny: str
    architecture: str
    """As it is published."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Ends of tensors' names."""
    left_out: tuple[str, ...] = ()
    """Ends of keys."""
    added: Mapping[str, Any] = field(default_factory=dict)
    """Keys with other values, or that only these files have."""
    added_tensors: tuple[str, ...] = ()
    more_tokens: int = 0
    more_embeddings: int = 0
    head_layer: int | None = None
    """That is published as a head (MTP)."""


FORMS = {
    "gemma3": Form(
        "gemma3",
        "gemma3",
        left_out=("rope.freq_base", "rope.freq_base_swa"),
        added={"gemma3.rope.global.freq_base": 10000.0, "gemma3.rope.local.freq_base": 5000.0},
        more_tokens=1,
        added_tensors=("v.patch_embedding.weight", "mm.mm_input_projection.weight"),
    ),
    "gemma3n": Form(
        "gemma3n",
        "gemma3n",
        added_tensors=("v.conv.weight", "a.conv.weight"),
        more_tokens=2,
        more_embeddings=2,
    ),
    "gemma4": Form(
        "gemma4-experts",
        "gemma4",
        renamed={".ffn_down_exps.scale": ".ffn_gate_inp.per_expert_scale"},
        added_tensors=("v.patch_embedding.weight", "a.conv.weight", "mm.input_projection.weight"),
    ),
    "llama4": Form("llama4", "llama4", added_tensors=("v.patch_embedding.weight", "mm.linear_1.weight")),
    "gptoss": Form(
        "gpt-oss",
        "gptoss",
        renamed={
            ".attn_output.weight": ".attn_out.weight",
            ".attn_output.bias": ".attn_out.bias",
            ".attn_sinks.weight": ".attn_sinks",
            ".post_attention_norm.weight": ".ffn_norm.weight",
        },
        left_out=("expert_feed_forward_length",),
        added={"tokenizer.ggml.pre": "default"},
    ),
    "lfm2": Form(
        "lfm2",
        "lfm2",
        renamed={"token_embd_norm.weight": "output_norm.weight"},
        added={"lfm2.feed_forward_length": 9999, "tokenizer.ggml.pre": "default"},
    ),
    "mistral3": Form(
        "mistral3",
        "mistral3",
        left_out=("yarn_beta_fast", "yarn_beta_slow", "yarn_log_multiplier", "temperature_scale"),
        added={
            "mistral3.rope.scaling.beta_fast": 8.0,
            "mistral3.rope.scaling.beta_slow": 2.0,
            "mistral3.rope.scaling.mscale_all_dim": 0.5,
            "mistral3.rope.scaling_beta": 0.4,
        },
        added_tensors=("v.patch_conv.weight", "mm.linear_1.weight"),
    ),
    "olmo3": Form("olmo3", "olmo3"),
    "qwen25vl": Form(
        "qwen2vl",
        "qwen25vl",
        left_out=("rope.dimension_sections",),
        added={"qwen25vl.rope.mrope_section": np.array([3, 3, 2], np.int32)},
        added_tensors=("v.blk.0.attn_q.weight", "mm.0.weight"),
    ),
    "qwen35": Form(
        "qwen35",
        "qwen35",
        renamed={".ssm_dt.bias": ".ssm_dt"},
        added={
            "qwen35.attention.head_count_kv": np.array([0, 0, 2, 0, 0, 2], np.int32),
            "qwen35.rope.dimension_sections": np.array([3, 3, 2], np.int32),
        },
        added_tensors=("v.patch_embed.weight", "mtp.fc.weight"),
    ),
    "qwen3vl": Form(
        "qwen3vl-wide",
        "qwen3vl",
        left_out=("rope.dimension_sections",),
        added_tensors=("v.patch_embed.weight", "v.pos_embed.weight"),
    ),
    "qwen3next": Form("qwen3next", "qwen3next", renamed={".ssm_dt.bias": ".ssm_dt"}),
}

HEAD_FORMS = {
    f"{name}-head": Form(
        name,
        name,
        left_out=("nextn_predict_layers",),
        added={f"{name}.block_count": TINY[name].layers - 1},
        head_layer=TINY[name].layers - 1,
    )
    for name in ("qwen35", "qwen35moe")
}

ENCODER_FORMS = {
    "embeddinggemma": Form(
        "gemma-embedding",
        "gemma3",
        renamed={
            "dense_2.weight": "dense.0.weight",
            "dense_3.weight": "dense.1.weight",
            "output_norm.weight": "norm.weight",
        },
        left_out=("feat_in", "feat_out", "rope.freq_base_swa"),
        added={"gemma3.attention.sliding_window_pattern": 6},
    ),
}
"""Of models that give no text."""


def ending(name: str, ends: Mapping[str, str]) -> str:
    found = [(old, new) for old, new in ends.items() if name.endswith(old)]
    return name.removesuffix(found[0][0]) + found[0][1] if found else name


_OF_HEADS = {
    "nextn.eh_proj": "mtp.fc",
    "nextn.enorm": "mtp.pre_fc_norm_embedding",
    "nextn.hnorm": "mtp.pre_fc_norm_hidden",
    "nextn.shared_head_norm": "mtp.norm",
    "nextn.embed_tokens": "mtp.embed_tokens",
    "nextn.shared_head_head": "mtp.shared_head.head",
}


def _published(name: str, data: NDArray[Any], form: Form) -> dict[str, NDArray[Any]]:
    """A tensor by its name in the form, or its matrices, as of experts in heads."""
    layer = f"blk.{form.head_layer}."
    if not name.startswith(layer):
        return {ending(name, form.renamed): data}
    inner = name.removeprefix(layer).removesuffix(".weight")
    if inner in _OF_HEADS:
        return {f"{_OF_HEADS[inner]}.weight": data - 1 if inner.endswith("norm") else data}
    if found := re.fullmatch("ffn_(gate|up|down)_exps", inner):
        pattern = f"mtp.layers.0.mlp.experts.{{}}.{found[1]}_proj.weight"
        return {pattern.format(number): matrix for number, matrix in enumerate(data)}
    return {f"mtp.layers.0.{inner}.weight": data}


def publish(
    source: Path,
    path: Path,
    form: Form,
    more: Mapping[str, NDArray[Any]] = MappingProxyType({}),
    left_out: Collection[str] = (),
) -> None:
    """more: tensors besides those of the form; left_out: of those."""
    extra = dict.fromkeys(form.added_tensors, np.ones((4, 32), np.float32)) | dict(more)
    names = list(extra)
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, form.architecture)
    old = str(reader.fields["general.architecture"].contents())
    for key, value in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture" or key.endswith(form.left_out):
            continue
        key = f"{form.architecture}.{key.removeprefix(old + '.')}" if key.startswith(old + ".") else key
        if key not in form.added:
            sub_type = value.types[1] if len(value.types) > 1 else None
            content = value.contents()
            if key in MORE:
                content = [*content, *[MORE[key]] * form.more_tokens]
            writer.add_key_value(key, content, value.types[0], sub_type)
    for key, value in form.added.items():
        if isinstance(value, np.ndarray):
            writer.add_key_value(key, value.tolist(), gguf.GGUFValueType.ARRAY, INT)
        else:
            writer.add_key_value(key, value, TYPES[type(value)])
    for number, tensor in enumerate(reader.tensors):
        data = tensor.data
        if tensor.name == "token_embd.weight":
            data = np.concatenate([data, data[: form.more_embeddings]])
        for published, values in _published(tensor.name, data, form).items():
            if published not in left_out:
                writer.add_tensor(published, values, raw_dtype=tensor.tensor_type)
        if number < len(names):  # among the others, as they are where names are in order
            writer.add_tensor(names[number], extra[names[number]])
    for name in names[len(reader.tensors) :]:
        writer.add_tensor(name, extra[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


TINIES = TINY | ENCODERS | {"qwen3vl-wide": WIDE}


def write_both(directory: Path, name: str) -> tuple[Path, Path]:
    """A file as llama.cpp's converter makes it, and the same one as it was published."""
    form = (FORMS | ENCODER_FORMS | HEAD_FORMS)[name]
    converted, published = directory / "converted.gguf", directory / "published.gguf"
    write_tiny(converted, TINIES[form.tiny])
    publish(converted, published, form)
    return converted, published
