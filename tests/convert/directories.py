"""Directories of tiny models as Hugging Face has them: random weights, a configuration and a tokenizer."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.tiny import SPECIAL_TOKENS, byte_level_vocabulary

Weights = dict[str, NDArray[Any]]

QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_WORDS = QWEN2_WORDS.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
PIECES = [
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "▁t",
    "he",
    "▁the",
    "▁",
    "t",
    "h",
    "e",
]

_CONFIG = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "max_position_embeddings": 2048,
    "num_attention_heads": 6,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}


@dataclass(frozen=True)
class TinyDirectory:
    model_class: str
    model_type: str
    sentencepiece: bool = False
    words: str = QWEN2_WORDS
    config: dict[str, Any] = field(default_factory=dict)
    layer: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of its own tensors, by name: shapes in terms of `_sizes`."""

    without: tuple[str, ...] = ()
    """Of those that most have."""

    @property
    def full_config(self) -> dict[str, Any]:
        vocab_size = len(PIECES) + 3 if self.sentencepiece else len(byte_level_vocabulary()[0]) + 2
        named = {"architectures": [self.model_class], "model_type": self.model_type}
        return named | _CONFIG | {"vocab_size": vocab_size, "bos_token_id": 1} | self.config


_BIASES = {f"self_attn.{part}_proj.bias": (size,) for part, size in (("q", "q"), ("k", "kv"), ("v", "kv"))}
_NORMS = {"self_attn.q_norm.weight": ("head",), "self_attn.k_norm.weight": ("head",)}
_POST_NORMS = {f"{place}_feedforward_layernorm.weight": ("width",) for place in ("pre", "post")}
_WIDE_NORMS = {"self_attn.q_norm.weight": ("q",), "self_attn.k_norm.weight": ("kv",)}
_AFTER = {"post_feedforward_layernorm.weight": ("width",)}
_SHARED_EXPERT = {
    "mlp.shared_expert.gate_proj.weight": ("ffn", "width"),
    "mlp.shared_expert.up_proj.weight": ("ffn", "width"),
    "mlp.shared_expert.down_proj.weight": ("width", "ffn"),
    "mlp.shared_expert_gate.weight": ("one", "width"),
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}

DIRECTORIES = {
    "llama": TinyDirectory(
        "LlamaForCausalLM",
        "llama",
        words=LLAMA3_WORDS,
        config={"rope_scaling": _LLAMA3_ROPE, "head_dim": 32, "tie_word_embeddings": False},
    ),
    "mistral": TinyDirectory("MistralForCausalLM", "mistral", sentencepiece=True),
    "qwen2": TinyDirectory("Qwen2ForCausalLM", "qwen2", layer=_BIASES),
    "qwen3": TinyDirectory(
        "Qwen3ForCausalLM",
        "qwen3",
        layer=_NORMS,
        config={
            "head_dim": 32,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
        },
    ),
    "qwen3moe": TinyDirectory(
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        layer=_NORMS,
        config={"head_dim": 32, "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 64},
    ),
    "qwen2moe": TinyDirectory(
        "Qwen2MoeForCausalLM",
        "qwen2_moe",
        layer=_BIASES | _SHARED_EXPERT,
        config={
            "num_experts": 7,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64,
        },
    ),
    "granite": TinyDirectory(
        "GraniteForCausalLM",
        "granite",
        config={
            "attention_multiplier": 0.3,
            "embedding_multiplier": 1.5,
            "residual_multiplier": 0.6,
            "logits_scaling": 1.5,
        },
    ),
    "smollm3": TinyDirectory("SmolLM3ForCausalLM", "smollm3", config={"num_hidden_layers": 5}),
    "olmo2": TinyDirectory(
        "Olmo2ForCausalLM", "olmo2", layer=_WIDE_NORMS | _AFTER, without=("input_layernorm.weight",)
    ),
    "exaone4": TinyDirectory(
        "Exaone4ForCausalLM",
        "exaone4",
        layer=_NORMS | _AFTER,
        without=("input_layernorm.weight",),
        config={
            "sliding_window": 64,
            "layer_types": ["sliding_attention", "full_attention"],
            "head_dim": 16,
        },
    ),
    "gemma2": TinyDirectory(
        "Gemma2ForCausalLM",
        "gemma2",
        sentencepiece=True,
        layer=_POST_NORMS,
        config={
            "head_dim": 32,
            "sliding_window": 64,
            "attn_logit_softcapping": 20.0,
            "final_logit_softcapping": 10.0,
            "query_pre_attn_scalar": 32,
        },
    ),
    "gemma3": TinyDirectory(
        "Gemma3ForCausalLM",
        "gemma3_text",
        sentencepiece=True,
        layer=_NORMS | _POST_NORMS,
        config={
            "head_dim": 32,
            "sliding_window": 64,
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "query_pre_attn_scalar": 32,
        },
    ),
}


def shapes(tiny: TinyDirectory) -> dict[str, tuple[int, ...]]:
    """Of all tensors."""
    config = tiny.full_config
    head = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    sizes = {
        "vocab": config["vocab_size"],
        "width": config["hidden_size"],
        "ffn": config.get("moe_intermediate_size", config["intermediate_size"]),
        "q": config["num_attention_heads"] * head,
        "kv": config["num_key_value_heads"] * head,
        "head": head,
        "one": 1,
    }
    layer = {
        "input_layernorm.weight": ("width",),
        "post_attention_layernorm.weight": ("width",),
        "self_attn.q_proj.weight": ("q", "width"),
        "self_attn.k_proj.weight": ("kv", "width"),
        "self_attn.v_proj.weight": ("kv", "width"),
        "self_attn.o_proj.weight": ("width", "q"),
        **tiny.layer,
    }
    feed_forward = {
        "gate_proj.weight": ("ffn", "width"),
        "up_proj.weight": ("ffn", "width"),
        "down_proj.weight": ("width", "ffn"),
    }
    prefixes = [f"mlp.experts.{i}." for i in range(config.get("num_experts", 0))] or ["mlp."]
    layer |= {prefix + name: shape for prefix in prefixes for name, shape in feed_forward.items()}
    layer = {name: shape for name, shape in layer.items() if name not in tiny.without}
    named = {"model.embed_tokens.weight": ("vocab", "width"), "model.norm.weight": ("width",)}
    if not config["tie_word_embeddings"]:
        named["lm_head.weight"] = ("vocab", "width")
    for i in range(config["num_hidden_layers"]):
        named |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    result = {name: tuple(sizes[size] for size in shape) for name, shape in named.items()}
    if "num_experts" in config:
        routers = [f"model.layers.{i}.mlp.gate.weight" for i in range(config["num_hidden_layers"])]
        result |= dict.fromkeys(routers, (config["num_experts"], config["hidden_size"]))
    return result


def random_weights(tiny: TinyDirectory, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Values that BF16 has."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in shapes(tiny).items():
        values = rng.standard_normal(shape, dtype=np.float32) / math.sqrt(shape[-1])
        if name.endswith("norm.weight"):
            values = values / 8 + (0 if tiny.model_type.startswith("gemma") else 1)
        weights[name] = from_bf16(to_bf16(values.astype(np.float32)))
    return weights


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Cut off, which is exact for values that BF16 has."""
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)


DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16, "U8": np.uint8, "F8_E4M3": np.uint8}


def safetensors(tensors: Mapping[str, tuple[str, NDArray[Any]]]) -> bytes:
    """A file of tensors, each of a type."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (dtype, values) in tensors.items():
        content = values.astype(DTYPES[dtype]).tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": values.shape,
            "data_offsets": [len(data), len(data) + len(content)],
        }
        data += content
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded + data


def write_directory(
    directory: Path,
    tiny: TinyDirectory,
    weights: Mapping[str, NDArray[np.float32]],
    num_parts: int = 1,
    dtype: str = "BF16",
) -> Path:
    """With weights of that type, in so many files."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(tiny.full_config | {"torch_dtype": "bfloat16"}))
    stored = {name: (dtype, to_bf16(v) if dtype == "BF16" else v) for name, v in weights.items()}
    names = [*stored]
    parts = {f"model-{i + 1:05}-of-{num_parts:05}.safetensors": names[i::num_parts] for i in range(num_parts)}
    if num_parts == 1:
        parts = {"model.safetensors": names}
    else:
        index = {name: part for part, own in parts.items() for name in own}
        (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    for part, own in parts.items():
        (directory / part).write_bytes(safetensors({name: stored[name] for name in own}))
    write_tokenizer(directory, tiny)
    return directory


def write_tokenizer(directory: Path, tiny: TinyDirectory) -> None:
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}
    if tiny.sentencepiece:
        (directory / "tokenizer.model").write_bytes(sentencepiece_model(PIECES))
        decoder = {len(PIECES): {"content": "<start>", "special": True}}
        settings: dict[str, Any] = special | {"added_tokens_decoder": decoder}
    else:
        (directory / "tokenizer.json").write_text(json.dumps(byte_level_tokenizer(tiny.words)))
        end, start, _ = SPECIAL_TOKENS
        settings = {
            "bos_token": start,
            "eos_token": {"__type": "AddedToken", "content": end},
            "add_bos_token": False,
        }
    settings["chat_template"] = "{{ messages[0].content }}"
    (directory / "tokenizer_config.json").write_text(
        json.dumps(settings | {"tokenizer_class": "PreTrainedTokenizerFast"})
    )


def byte_level_tokenizer(words: str) -> dict[str, Any]:
    """tokenizer.json."""
    tokens, _, merges = byte_level_vocabulary()
    first_special = len(tokens) - len(SPECIAL_TOKENS)
    added = [
        {"id": first_special + i, "content": text, "special": True, "normalized": False, "single_word": False,
         "lstrip": False, "rstrip": False}
        for i, text in enumerate(SPECIAL_TOKENS)
    ]  # fmt: skip
    split = {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {text: i for i, text in enumerate(tokens[:first_special])},
            "merges": merges,
            "ignore_merges": words == LLAMA3_WORDS,
        },
    }


def sentencepiece_model(pieces: list[str]) -> bytes:
    """tokenizer.model, as sentencepiece_model.proto has it."""
    kinds = {"<unk>": 2, "<s>": 3, "</s>": 3}
    model = b""
    for i, piece in enumerate(pieces):
        text = piece.encode()
        kind = kinds.get(piece, 6 if piece.startswith("<0x") else 1)
        message = (
            b"\x0a"
            + bytes([len(text)])
            + text
            + b"\x15"
            + struct.pack("<f", -float(i))
            + b"\x18"
            + bytes([kind])
        )
        model += b"\x0a" + bytes([len(message)]) + message
    trainer = b"\x18\x02" + b"\x98\x02\x01"  # model_type: BPE; byte_fallback
    return model + b"\x12" + bytes([len(trainer)]) + trainer
