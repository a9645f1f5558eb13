"""What the metadata of published files lack, or say in another way: see puna.gguf.published."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Values = dict[str, Any]
Shapes = Mapping[str, tuple[int, ...]]
"""Of tensors, by their names in the file, fastest first."""

_GEMMA_END_OF_TURN = 106
_LLAMA3_END_OF_TURN = 128009
_NORMAL, _BYTE = 1, 6  # types of tokens
_QWEN3VL_SECTIONS = (24, 20, 20)
"""Of all sizes: half of a head's 128 values."""


def gemma3(metadata: Mapping[str, Any], _: Shapes) -> Values:
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


def has_more_tokens_than_layers(shapes: Shapes) -> bool:
    """Tokens of images and sounds, for which layers have no embeddings of their own."""
    names = ("token_embd.weight", "per_layer_token_embd.weight")
    return all(name in shapes for name in names) and _rows(shapes, names[0]) > _rows(shapes, names[1])


def gemma3n(metadata: Mapping[str, Any], shapes: Shapes) -> Values:
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


def gptoss(metadata: Mapping[str, Any], shapes: Shapes) -> Values:
    values: Values = {"tokenizer.ggml.pre": "gpt-4o"}
    if "gptoss.rope.scaling.type" not in metadata:
        values["gpt-oss.rope.scaling.type"] = "yarn"
    if "gptoss.expert_feed_forward_length" not in metadata and "blk.0.ffn_gate_exps.weight" in shapes:
        values["gpt-oss.expert_feed_forward_length"] = _rows(shapes, "blk.0.ffn_gate_exps.weight")
    return values


def lfm2(_: Mapping[str, Any], shapes: Shapes) -> Values:
    """Some files state a feed-forward length that their tensors do not have."""
    values: Values = {"tokenizer.ggml.pre": "lfm2"}
    if "blk.0.ffn_gate.weight" in shapes:
        values["lfm2.feed_forward_length"] = _rows(shapes, "blk.0.ffn_gate.weight")
    return values


def qwen_hybrid(architecture: str) -> Callable[[Mapping[str, Any], Shapes], Values]:
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


def qwen25vl(metadata: Mapping[str, Any], _: Shapes) -> Values:
    return _four_sections(metadata, "qwen25vl.rope.mrope_section", "qwen2vl")


def _four_sections(metadata: Mapping[str, Any], key: str, architecture: str) -> Values:
    import numpy as np  # not where the daemon imports this: it does without

    sections = metadata.get(key)
    if not isinstance(sections, np.ndarray) or sections.shape != (3,) or sections.dtype.kind not in "iu":
        return {}
    return {f"{architecture}.rope.dimension_sections": np.append(sections, 0).astype(np.int32)}


def is_llama3(metadata: Mapping[str, Any], _: Shapes) -> bool:
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


def llama3(metadata: Mapping[str, Any], _: Shapes) -> Values:
    values: Values = {}
    if metadata.get("tokenizer.ggml.pre", "") in ("", "default"):
        values["tokenizer.ggml.pre"] = "llama-bpe"
    for key in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"):
        if metadata.get(key, 128001) == 128001:
            values[key] = _LLAMA3_END_OF_TURN
    return values


def glm4moelite(metadata: Mapping[str, Any], _: Shapes) -> Values:
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


def mistral3(metadata: Mapping[str, Any], _: Shapes) -> Values:
    told = metadata.get("tokenizer.ggml.pre", "") not in ("", "default")
    return {} if told else {"tokenizer.ggml.pre": "tekken"}


def qwen3vl(architecture: str) -> Callable[[Mapping[str, Any], Shapes], Values]:
    """Sections of rotation, which are left out; and of how many layers of the tower there are outputs."""

    def values(metadata: Mapping[str, Any], _: Shapes) -> Values:
        import numpy as np  # not where the daemon imports this: it does without

        found: Values = {}
        if (key := f"{architecture}.rope.dimension_sections") not in metadata:
            found[key] = np.array([*_QWEN3VL_SECTIONS, 0], np.int32)
        layers = metadata.get(f"{architecture}.vision.deepstack_visual_indexes")
        if (key := f"{architecture}.n_deepstack_layers") not in metadata and isinstance(layers, np.ndarray):
            found[key] = len(layers)
        return found

    return values


def embedding_gemma(metadata: Mapping[str, Any], shapes: Shapes) -> Values:
    """How wide its last two layers are."""
    values: Values = {}
    for number, tensor in ((2, "dense.0.weight"), (3, "dense.1.weight")):
        if len(shape := shapes.get(tensor, ())) == 2:
            values[f"gemma-embedding.dense_{number}_feat_in"] = shape[0]
            values[f"gemma-embedding.dense_{number}_feat_out"] = shape[1]
    if "gemma3.rope.freq_base_swa" not in metadata:
        values["gemma-embedding.rope.freq_base_swa"] = 10000.0
    return values
