"""Files as Ollama published them before it ran llama.cpp: the same models, under names of its own.

They are read as if they had the names that llama.cpp's converter gives; nothing is rewritten. What differs is
listed in Ollama's `llama/compat/llama-ollama-compat.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from puna.gguf import published_values as of
from puna.gguf.published_heads import PublishedHead
from puna.gguf.published_values import Shapes, Values


@dataclass(frozen=True, slots=True)
class Translation:
    """What is to be read in place of what is in a file."""

    values: Mapping[str, Any]
    """Metadata that is changed or missing."""
    keys: Mapping[str, str]
    """Of metadata under another key: the key in the file, by the one that it is read by."""
    tensors: Mapping[str, str]
    """What tensors are read by, by their names in the file. Those that are left out are not there: parts that
    a model of text does not have.
    """
    head: PublishedHead | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialect:
    """metadata: as in the file; shapes: of its tensors, fastest first."""

    applies: Callable[[Mapping[str, Any], Shapes], bool] = lambda _metadata, _shapes: True
    becomes: str = ""
    """The architecture's name; empty: it stays."""
    values: Callable[[Mapping[str, Any], Shapes], Values] = lambda _metadata, _shapes: {}
    keys: tuple[tuple[str, str], ...] = ()
    """Without the architecture's name: in the file, and what they are read by."""
    dropped: tuple[str, ...] = ()
    """Keys, likewise, that `becomes` does not bring along."""
    names: tuple[tuple[str, str], ...] = ()
    """Of tensors: in the file, and what they are read by; with a dot in front, their ends."""
    hidden: tuple[str, ...] = ()
    """Beginnings of the names of tensors that are left out."""

    def name_of(self, tensor: str) -> str:
        for old, new in self.names:
            if tensor == old or (old.startswith(".") and tensor.endswith(old)):
                return tensor.removesuffix(old) + new
        return tensor


def translation_of(
    metadata: Mapping[str, Any], shapes: Shapes, head: PublishedHead | None = None
) -> Translation | None:
    """None for a file that is as llama.cpp has it. shapes: of its tensors, fastest first; head: that is to be
    read as well.
    """
    architecture = metadata.get("general.architecture")
    is_encoder = architecture == "gemma3" and _DENSE in shapes
    dialect = _EMBEDDING_GEMMA if is_encoder else _DIALECTS.get(str(architecture))
    if dialect is None or not dialect.applies(metadata, shapes):
        return None
    values, prefix = dialect.values(metadata, shapes), f"{architecture}."
    becomes = dialect.becomes or architecture
    keys = {f"{becomes}.{new}": prefix + old for old, new in dialect.keys if prefix + old in metadata}
    if dialect.becomes:
        values["general.architecture"] = becomes
        own = (key.removeprefix(prefix) for key in metadata if key.startswith(prefix))
        keys |= {f"{becomes}.{key}": prefix + key for key in own if key not in dialect.dropped}
    tensors = {name: dialect.name_of(name) for name in shapes if not name.startswith(dialect.hidden)}
    if head is not None:
        values, tensors = {**values, **head.values}, {**tensors, **head.tensors}
    return Translation(values, keys, tensors, head)


def _has(*keys: str, tensors: tuple[str, ...] = ()) -> Callable[[Mapping[str, Any], Shapes], bool]:
    """Whether there is any of these keys, or a tensor whose name begins so."""
    return lambda metadata, shapes: (
        any(key in metadata for key in keys) or any(name.startswith(tensors) for name in shapes)
    )


_OF_IMAGES = ("v.", "mm.")
_OF_GEMMA4 = (*_OF_IMAGES, "a.", "model.vision_tower.")
_STEP_BIAS = ((".ssm_dt", ".ssm_dt.bias"),)


def _qwen35(architecture: str) -> _Dialect:
    keys = ("vision.block_count", "image_token_id", "ssm.v_head_reordered", "rope.mrope_interleaved")
    return _Dialect(
        applies=_has(*(f"{architecture}.{key}" for key in keys), tensors=("mtp.", "v.")),
        values=of.qwen_hybrid(architecture),
        names=_STEP_BIAS,
        hidden=(*_OF_IMAGES, "mtp."),
    )


def _qwen3vl(architecture: str) -> _Dialect:
    return _Dialect(
        applies=lambda metadata, shapes: (
            f"{architecture}.rope.dimension_sections" not in metadata
            or _has(tensors=_OF_IMAGES)(metadata, shapes)
        ),
        values=of.qwen3vl(architecture),
        hidden=_OF_IMAGES,
    )


_DENSE = "dense.0.weight"
_EMBEDDING_GEMMA = _Dialect(
    becomes="gemma-embedding",
    values=of.embedding_gemma,
    dropped=("attention.causal", "attention.sliding_window_pattern"),
    names=(
        (_DENSE, "dense_2.weight"),
        ("dense.1.weight", "dense_3.weight"),
        ("norm.weight", "output_norm.weight"),
    ),
)
"""What it has in common with Gemma 3 besides its name is not enough."""
_DIALECTS = {
    "gemma3": _Dialect(
        applies=lambda metadata, shapes: (
            "gemma3.attention.layer_norm_rms_epsilon" not in metadata
            or _has(
                "gemma3.mm.tokens_per_image",
                "gemma3.rope.global.freq_base",
                "gemma3.rope.local.freq_base",
                "tokenizer.ggml.add_padding_token",
                "tokenizer.ggml.add_unknown_token",
                tensors=_OF_IMAGES,
            )(metadata, shapes)
        ),
        values=of.gemma3,
        hidden=_OF_IMAGES,
    ),
    "gemma3n": _Dialect(
        applies=lambda _, shapes: of.has_more_tokens_than_layers(shapes),
        values=of.gemma3n,
        hidden=_OF_GEMMA4,
    ),
    "gemma4": _Dialect(
        applies=lambda metadata, shapes: (
            metadata.get("tokenizer.ggml.model") == "llama" or _has(tensors=_OF_GEMMA4)(metadata, shapes)
        ),
        values=lambda _metadata, _shapes: {"tokenizer.ggml.model": "gemma4"},
        names=((".ffn_gate_inp.per_expert_scale", ".ffn_down_exps.scale"),),
        hidden=_OF_GEMMA4,
    ),
    "glm4moelite": _Dialect(becomes="deepseek2", values=of.glm4moelite),
    "gptoss": _Dialect(
        becomes="gpt-oss",
        values=of.gptoss,
        names=(
            (".attn_out.weight", ".attn_output.weight"),
            (".attn_out.bias", ".attn_output.bias"),
            (".attn_sinks", ".attn_sinks.weight"),
            (".ffn_norm.weight", ".post_attention_norm.weight"),
        ),
    ),
    "lfm2": _Dialect(
        applies=lambda _, shapes: "output_norm.weight" in shapes and "token_embd_norm.weight" not in shapes,
        values=of.lfm2,
        names=(("output_norm.weight", "token_embd_norm.weight"),),
    ),
    "llama": _Dialect(applies=of.is_llama3, values=of.llama3),
    "llama4": _Dialect(applies=_has(tensors=_OF_IMAGES), hidden=_OF_IMAGES),
    "mistral3": _Dialect(
        applies=_has(
            "mistral3.rope.scaling.beta_fast",
            "mistral3.rope.scaling.mscale_all_dim",
            "mistral3.rope.scaling_beta",
            tensors=_OF_IMAGES,
        ),
        values=of.mistral3,
        keys=(
            ("rope.scaling.beta_fast", "rope.scaling.yarn_beta_fast"),
            ("rope.scaling.beta_slow", "rope.scaling.yarn_beta_slow"),
            ("rope.scaling.mscale_all_dim", "rope.scaling.yarn_log_multiplier"),
            ("rope.scaling_beta", "attention.temperature_scale"),
        ),
        hidden=_OF_IMAGES,
    ),
    "olmo3": _Dialect(becomes="olmo2"),
    "qwen25vl": _Dialect(becomes="qwen2vl", values=of.qwen25vl, hidden=_OF_IMAGES),
    "qwen35": _qwen35("qwen35"),
    "qwen35moe": _qwen35("qwen35moe"),
    "qwen3vl": _qwen3vl("qwen3vl"),
    "qwen3vlmoe": _qwen3vl("qwen3vlmoe"),
    "qwen3next": _Dialect(
        applies=lambda _, shapes: any(name.endswith(".ssm_dt") for name in shapes),
        values=of.qwen_hybrid("qwen3next"),
        names=_STEP_BIAS,
    ),
}
