"""Files as Ollama published them before it ran llama.cpp: the same models, under names of its own.

They are read as if they had the names that llama.cpp's converter gives; nothing is rewritten. What differs is
listed in Ollama's `llama/compat/llama-ollama-compat.cpp`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Values = dict[str, Any]
Shapes = Mapping[str, tuple[int, ...]]

_GEMMA_END_OF_TURN = 106
_LLAMA3_END_OF_TURN = 128009
_NORMAL, _BYTE = 1, 6  # types of tokens


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialect:
    """metadata: as in the file; shapes: of its tensors, fastest first."""

    applies: Callable[[Mapping[str, Any], Shapes], bool] = lambda _metadata, _shapes: True
    becomes: str = ""
    """The architecture's name; empty: it stays."""
    values: Callable[[Mapping[str, Any], Shapes], Values] = lambda _metadata, _shapes: {}
    endings: tuple[tuple[str, str], ...] = ()
    """Of tensors' names: in the file, and what they are read by."""
    hidden: tuple[str, ...] = ()
    """Beginnings of the names of tensors that are left out."""

    def name_of(self, tensor: str) -> str:
        for old, new in self.endings:
            if tensor.endswith(old):
                return tensor.removesuffix(old) + new
        return tensor


def translation_of(metadata: Mapping[str, Any], shapes: Shapes) -> Translation | None:
    """None for a file that is as llama.cpp has it. shapes: of its tensors, fastest first."""
    architecture = metadata.get("general.architecture")
    dialect = _DIALECTS.get(architecture) if isinstance(architecture, str) else None
    if dialect is None or not dialect.applies(metadata, shapes):
        return None
    values, keys = dialect.values(metadata, shapes), {}
    if dialect.becomes:
        values["general.architecture"] = dialect.becomes
        prefix = f"{architecture}."
        keys = {
            f"{dialect.becomes}.{key.removeprefix(prefix)}": key for key in metadata if key.startswith(prefix)
        }
    tensors = {name: dialect.name_of(name) for name in shapes if not name.startswith(dialect.hidden)}
    return Translation(values, keys, tensors)


def _has(*keys: str, tensors: tuple[str, ...] = ()) -> Callable[[Mapping[str, Any], Shapes], bool]:
    """Whether there is any of these keys, or a tensor whose name begins so."""
    return lambda metadata, shapes: (
        any(key in metadata for key in keys) or any(name.startswith(tensors) for name in shapes)
    )


def _gemma3(metadata: Mapping[str, Any], _: Shapes) -> Values:
    """Rotation under other names, or left out, with Gemma 3's values."""
    values: Values = {
        "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
        "gemma3.rope.freq_base": metadata.get("gemma3.rope.global.freq_base", 1e6),
        "gemma3.rope.freq_base_swa": metadata.get("gemma3.rope.local.freq_base", 1e4),
    }
    if (
        _integer(metadata, "gemma3.context_length") >= 131072
    ):  # all sizes but the smallest were stretched so far
        values |= {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}
    return {key: value for key, value in values.items() if key not in metadata}


def _has_more_tokens_than_layers(shapes: Shapes) -> bool:
    """Tokens of images and sounds, for which layers have no embeddings of their own."""
    names = ("token_embd.weight", "per_layer_token_embd.weight")
    return all(name in shapes for name in names) and _rows(shapes, names[0]) > _rows(shapes, names[1])


def _gemma3n(metadata: Mapping[str, Any], shapes: Shapes) -> Values:
    """The vocabulary of text alone; bytes and unused tokens as what they are."""
    import numpy as np  # not where the daemon imports this: it does without

    count, values = _rows(shapes, "per_layer_token_embd.weight"), Values()
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"):
        if isinstance(metadata.get(key), list | np.ndarray):
            values[key] = metadata[key][:count]
    tokens, types = (values.get(f"tokenizer.ggml.{name}") for name in ("tokens", "token_type"))
    if isinstance(tokens, list) and isinstance(types, np.ndarray) and len(tokens) == len(types):
        values["tokenizer.ggml.token_type"] = types = types.copy()
        for i, token in enumerate(tokens):
            if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
                types[i] = _BYTE
            elif token.startswith("<unused"):
                types[i] = _NORMAL
    return {"tokenizer.ggml.eot_token_id": _GEMMA_END_OF_TURN} | values


def _gptoss(metadata: Mapping[str, Any], shapes: Shapes) -> Values:
    values: Values = {"tokenizer.ggml.pre": "gpt-4o"}
    if "gptoss.rope.scaling.type" not in metadata:
        values["gpt-oss.rope.scaling.type"] = "yarn"
    if "gptoss.expert_feed_forward_length" not in metadata and "blk.0.ffn_gate_exps.weight" in shapes:
        values["gpt-oss.expert_feed_forward_length"] = _rows(shapes, "blk.0.ffn_gate_exps.weight")
    return values


def _lfm2(_: Mapping[str, Any], shapes: Shapes) -> Values:
    """Some files state a feed-forward length that their tensors do not have."""
    values: Values = {"tokenizer.ggml.pre": "lfm2"}
    if "blk.0.ffn_gate.weight" in shapes:
        values["lfm2.feed_forward_length"] = _rows(shapes, "blk.0.ffn_gate.weight")
    return values


def _qwen_hybrid(architecture: str) -> Callable[[Mapping[str, Any], Shapes], Values]:
    """KV heads of each layer, 0 for recurrent ones; three sections of rotation where there are four."""

    def values(metadata: Mapping[str, Any], _: Shapes) -> Values:
        import numpy as np  # not where the daemon imports this: it does without

        heads = f"{architecture}.attention.head_count_kv"
        counts = metadata.get(heads)
        found: Values = {}
        if isinstance(counts, np.ndarray) and counts.dtype.kind in "iu" and counts.size and counts.max() > 0:
            found[heads] = int(counts.max())
        return found | _four_sections(metadata, f"{architecture}.rope.dimension_sections", architecture)

    return values


def _qwen25vl(metadata: Mapping[str, Any], _: Shapes) -> Values:
    return _four_sections(metadata, "qwen25vl.rope.mrope_section", "qwen2vl")


def _four_sections(metadata: Mapping[str, Any], key: str, architecture: str) -> Values:
    import numpy as np  # not where the daemon imports this: it does without

    sections = metadata.get(key)
    if not isinstance(sections, np.ndarray) or sections.shape != (3,) or sections.dtype.kind not in "iu":
        return {}
    return {f"{architecture}.rope.dimension_sections": np.append(sections, 0).astype(np.int32)}


def _is_llama3(metadata: Mapping[str, Any], _: Shapes) -> bool:
    """Llama 3's vocabulary, whose kind is not told, or whose end is that of texts and not of turns."""
    told = metadata.get("tokenizer.ggml.pre", "") not in ("", "default")
    if told and metadata.get("tokenizer.ggml.eos_token_id") != 128001:
        return False
    tokens = metadata.get("tokenizer.ggml.tokens")
    return (
        isinstance(tokens, list)
        and len(tokens) > _LLAMA3_END_OF_TURN
        and tokens[_LLAMA3_END_OF_TURN] == "<|eot_id|>"
        and tokens[128006] == "<|start_header_id|>"
    )


def _llama3(metadata: Mapping[str, Any], _: Shapes) -> Values:
    values: Values = {}
    if metadata.get("tokenizer.ggml.pre", "") in ("", "default"):
        values["tokenizer.ggml.pre"] = "llama-bpe"
    for key in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"):
        if metadata.get(key, 128001) == 128001:
            values[key] = _LLAMA3_END_OF_TURN
    return values


def _glm4moelite(metadata: Mapping[str, Any], _: Shapes) -> Values:
    """The lengths are those of heads; llama.cpp has one head, the latent: its rank, and what rotates."""

    def number(name: str) -> int:
        return _integer(metadata, f"glm4moelite.{name}")

    rank, rotated = number("attention.kv_lora_rank"), number("rope.dimension_count")
    head = number("attention.key_length")
    values: Values = {
        "deepseek2.attention.head_count_kv": 1,
        "deepseek2.attention.key_length": rank + rotated,
        "deepseek2.attention.value_length": rank,
        "deepseek2.attention.key_length_mla": head,
        "deepseek2.attention.value_length_mla": head,
        "tokenizer.ggml.pre": "glm4",
    }
    return {key: value for key, value in values.items() if value}


def _integer(metadata: Mapping[str, Any], key: str) -> int:
    value = metadata.get(key)
    return value if isinstance(value, int) else 0


def _rows(shapes: Shapes, tensor: str) -> int:
    shape = shapes[tensor]
    return shape[1] if len(shape) > 1 else 1


_OF_IMAGES = ("v.", "mm.")
_OF_GEMMA4 = (*_OF_IMAGES, "a.", "model.vision_tower.")
_STEP_BIAS = ((".ssm_dt", ".ssm_dt.bias"),)


def _qwen35(architecture: str) -> _Dialect:
    keys = ("vision.block_count", "image_token_id", "ssm.v_head_reordered", "rope.mrope_interleaved")
    return _Dialect(
        applies=_has(*(f"{architecture}.{key}" for key in keys), tensors=("mtp.", "v.")),
        values=_qwen_hybrid(architecture),
        endings=_STEP_BIAS,
        hidden=(*_OF_IMAGES, "mtp."),
    )


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
        values=_gemma3,
        hidden=_OF_IMAGES,
    ),
    "gemma3n": _Dialect(
        applies=lambda _, shapes: _has_more_tokens_than_layers(shapes),
        values=_gemma3n,
    ),
    "gemma4": _Dialect(
        applies=lambda metadata, shapes: (
            metadata.get("tokenizer.ggml.model") == "llama" or _has(tensors=_OF_GEMMA4)(metadata, shapes)
        ),
        values=lambda _metadata, _shapes: {"tokenizer.ggml.model": "gemma4"},
        endings=((".ffn_gate_inp.per_expert_scale", ".ffn_down_exps.scale"),),
        hidden=_OF_GEMMA4,
    ),
    "glm4moelite": _Dialect(becomes="deepseek2", values=_glm4moelite),
    "gptoss": _Dialect(
        becomes="gpt-oss",
        values=_gptoss,
        endings=(
            (".attn_out.weight", ".attn_output.weight"),
            (".attn_out.bias", ".attn_output.bias"),
            (".attn_sinks", ".attn_sinks.weight"),
            (".ffn_norm.weight", ".post_attention_norm.weight"),
        ),
    ),
    "lfm2": _Dialect(
        applies=lambda _, shapes: "output_norm.weight" in shapes and "token_embd_norm.weight" not in shapes,
        values=_lfm2,
        endings=(("output_norm.weight", "token_embd_norm.weight"),),
    ),
    "llama": _Dialect(applies=_is_llama3, values=_llama3),
    "llama4": _Dialect(applies=_has(tensors=_OF_IMAGES), hidden=_OF_IMAGES),
    "qwen25vl": _Dialect(becomes="qwen2vl", values=_qwen25vl, hidden=_OF_IMAGES),
    "qwen35": _qwen35("qwen35"),
    "qwen35moe": _qwen35("qwen35moe"),
    "qwen3next": _Dialect(
        applies=lambda _, shapes: any(name.endswith(".ssm_dt") for name in shapes),
        values=_qwen_hybrid("qwen3next"),
        endings=_STEP_BIAS,
    ),
}
