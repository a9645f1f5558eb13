"""Tiny random-weight GGUF files of each architecture: one table row each, checked alike everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests import tiny_layers, tiny_weights
from tests.tiny_layers import Tensors

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True)
class Tiny:
    """Sizes are odd on purpose: nothing is a multiple of more than it must be."""

    architecture: str
    layers: int = 2
    width: int = 96
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 16
    ffn: int = 160
    context: int = 2048
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norm: bool = False
    tied: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)
    freq_factors: bool = False
    one_projection: bool = False
    """Of what a delta net is made of, as in older files of Qwen3-Next."""
    layer_tensors: Callable[[Tiny, int], Tensors] = tiny_layers.transformer
    output_norm: str = "output_norm.weight"
    norm_bias: bool = False
    """Of the last norm."""
    output_bias: bool = False
    ffn_scale: float = 1.0
    """Of what the feed-forward part adds: little of GELU, which llama.cpp rounds to half precision."""


EXPERTS = {"expert_count": 7, "expert_used_count": 3, "expert_feed_forward_length": 64}
DELTA_NET = {
    "full_attention_interval": 3,
    "rope.dimension_count": 16,
    "ssm.conv_kernel": 4,
    "ssm.group_count": 3,
    "ssm.inner_size": 96,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 6,
}
QWEN35 = DELTA_NET | {"rope.dimension_sections": [3, 3, 2, 0], "nextn_predict_layers": 1}
YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 512,
}
LATENTS = {
    "attention.head_count_kv": 1,
    "attention.kv_lora_rank": 64,
    "attention.key_length": 80,
    "attention.value_length": 64,
    "attention.key_length_mla": 48,
    "attention.value_length_mla": 32,
    "rope.dimension_count": 16,
    "expert_shared_count": 1,
    "leading_dense_block_count": 1,
    "rope.scaling.yarn_log_multiplier": 0.0707,
}
MAMBA2 = {
    "ssm.conv_kernel": 4,
    "ssm.group_count": 2,
    "ssm.inner_size": 192,
    "ssm.state_size": 24,
    "ssm.time_step_rank": 12,
}
LAYER_NORM = {"attention.layer_norm_epsilon": 1e-4}
MULTIPLIERS = {
    "attention.scale": 0.3,
    "embedding_scale": 1.5,
    "logit_scale": 1.5,
    "residual_scale": 0.6,
}
GRANITE = MAMBA2 | MULTIPLIERS | {"attention.head_count_kv": [0, 2, 0]}

TINY = {
    "llama": Tiny("llama"),
    "llama-untied": Tiny("llama", layers=3, kv_heads=6, tied=False),
    "llama-rope-factors": Tiny("llama", freq_factors=True, head_dim=32),
    "llama-window": Tiny("llama", metadata={"attention.sliding_window": 37}),  # which nobody heeds
    "llama-linear": Tiny("llama", metadata={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "llama-yarn": Tiny(
        "llama",
        head_dim=64,
        metadata=YARN,
    ),
    "mixtral": Tiny("llama", ffn=64, tied=False, metadata=EXPERTS, layer_tensors=tiny_layers.with_experts),
    "gemma2": Tiny(
        "gemma2",
        layers=3,
        head_dim=32,
        post_norm=True,
        metadata={
            "attention.sliding_window": 37,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 6.0,
        },
    ),
    "gemma3": Tiny(
        "gemma3",
        layers=7,
        head_dim=32,
        qk_norm=True,
        post_norm=True,
        metadata={
            "attention.sliding_window": 37,
            "rope.freq_base_swa": 5000.0,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
    ),
    "gemma3-full": Tiny(
        "gemma3", qk_norm=True, post_norm=True, tied=False, metadata={"final_logit_softcapping": 5.0}
    ),
    "qwen2": Tiny("qwen2", qkv_bias=True),
    "qwen2vl": Tiny(
        "qwen2vl",
        qkv_bias=True,
        # llama.cpp takes 0 for the epsilon of this architecture, whatever the file has.
        metadata={"rope.dimension_sections": [3, 3, 2, 0], "attention.layer_norm_rms_epsilon": 1e-15},
    ),
    "qwen2moe": Tiny(
        "qwen2moe",
        qkv_bias=True,
        tied=False,
        metadata=EXPERTS | {"expert_shared_feed_forward_length": 160},
        layer_tensors=tiny_layers.qwen2moe,
    ),
    "qwen3": Tiny("qwen3", qk_norm=True, head_dim=32),
    "seed_oss": Tiny("seed_oss", qkv_bias=True, layer_tensors=tiny_layers.seed_oss),
    "ernie4_5": Tiny("ernie4_5"),
    "internlm2": Tiny("internlm2", tied=False),
    "smollm3": Tiny("smollm3", layers=5),
    "olmo2": Tiny("olmo2", tied=False, layer_tensors=tiny_layers.olmo2),
    "olmo3": Tiny(
        "olmo2",
        layers=5,
        tied=False,
        metadata=YARN | {"attention.sliding_window": 37},
        layer_tensors=tiny_layers.olmo2,
    ),
    "exaone4": Tiny("exaone4", qk_norm=True, layer_tensors=tiny_layers.exaone4),
    "exaone4-windows": Tiny(
        "exaone4",
        layers=64,
        width=48,
        heads=3,
        kv_heads=1,
        ffn=32,
        qk_norm=True,
        metadata={"attention.sliding_window": 37, "attention.sliding_window_pattern": 4},
        layer_tensors=tiny_layers.exaone4,
    ),
    "glm4": Tiny(
        "glm4",
        qkv_bias=True,
        post_norm=True,
        metadata={"rope.dimension_count": 8},
        layer_tensors=tiny_layers.glm4,
    ),
    "gemma": Tiny("gemma", head_dim=32),
    "command-r": Tiny(
        "command-r", metadata=LAYER_NORM | {"logit_scale": 0.25}, layer_tensors=tiny_layers.one_norm
    ),
    "cohere2": Tiny(
        "cohere2",
        layers=5,
        metadata=LAYER_NORM | {"logit_scale": 0.25, "attention.sliding_window": 37},
        layer_tensors=tiny_layers.one_norm,
    ),
    "starcoder2": Tiny(
        "starcoder2",
        metadata=LAYER_NORM,
        layer_tensors=tiny_layers.with_biases,
        norm_bias=True,
        ffn_scale=0.03,
    ),
    "stablelm": Tiny(
        "stablelm",
        tied=False,
        qkv_bias=True,
        metadata=LAYER_NORM | {"rope.dimension_count": 8},
        layer_tensors=tiny_layers.stablelm,
        norm_bias=True,
    ),
    "stablelm-12b": Tiny(
        "stablelm", tied=False, metadata=LAYER_NORM, layer_tensors=tiny_layers.stablelm_12b, norm_bias=True
    ),
    "gptneox": Tiny(
        "gptneox",
        tied=False,
        kv_heads=6,
        metadata=LAYER_NORM | {"rope.dimension_count": 8, "use_parallel_residual": True},
        layer_tensors=tiny_layers.fused,
        norm_bias=True,
        ffn_scale=0.03,
    ),
    "gptneox-sequential": Tiny(
        "gptneox",
        tied=False,
        kv_heads=6,
        metadata=LAYER_NORM | {"use_parallel_residual": False},
        layer_tensors=tiny_layers.fused,
        norm_bias=True,
        ffn_scale=0.03,
    ),
    "phi2": Tiny(
        "phi2",
        tied=False,
        kv_heads=6,
        metadata=LAYER_NORM,
        layer_tensors=tiny_layers.phi2,
        norm_bias=True,
        output_bias=True,
        ffn_scale=0.03,
    ),
    "falcon": Tiny(
        "falcon",
        kv_heads=1,
        metadata=LAYER_NORM,
        layer_tensors=tiny_layers.falcon,
        norm_bias=True,
        ffn_scale=0.03,
    ),
    "granite": Tiny("granite", metadata=MULTIPLIERS),
    "granitemoe": Tiny(
        "granitemoe", ffn=64, metadata=MULTIPLIERS | EXPERTS, layer_tensors=tiny_layers.with_experts
    ),
    "qwen3moe": Tiny(
        "qwen3moe", qk_norm=True, head_dim=32, metadata=EXPERTS, layer_tensors=tiny_layers.with_experts
    ),
    "gpt-oss": Tiny(
        "gpt-oss",
        layers=3,
        qkv_bias=True,
        tied=False,
        metadata=EXPERTS | YARN | {"attention.sliding_window": 37},
        layer_tensors=tiny_layers.gpt_oss,
    ),
    "deepseek2": Tiny(
        "deepseek2",
        layers=3,
        metadata=EXPERTS
        | YARN
        | LATENTS
        | {
            "attention.q_lora_rank": 32,
            "expert_count": 12,
            "expert_gating_func": 2,
            "expert_group_count": 4,
            "expert_group_used_count": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
        },
        layer_tensors=tiny_layers.deepseek2,
    ),
    # llama.cpp takes queries without a product of lower rank only from so many layers.
    "deepseek2-lite": Tiny(
        "deepseek2",
        layers=27,
        width=64,
        heads=3,
        tied=False,
        metadata=EXPERTS | YARN | LATENTS,
        layer_tensors=tiny_layers.deepseek2,
    ),
    "qwen35": Tiny(
        "qwen35", layers=6, qk_norm=True, head_dim=32, metadata=QWEN35, layer_tensors=tiny_layers.qwen35
    ),
    "qwen35moe": Tiny(
        "qwen35moe",
        layers=4,
        qk_norm=True,
        tied=False,
        metadata=QWEN35 | EXPERTS | {"expert_shared_feed_forward_length": 160},
        layer_tensors=tiny_layers.qwen35,
    ),
    "qwen3next": Tiny(
        "qwen3next",
        layers=3,
        qk_norm=True,
        metadata=DELTA_NET | EXPERTS | {"expert_shared_feed_forward_length": 160},
        layer_tensors=tiny_layers.qwen35,
    ),
    "qwen3next-one-projection": Tiny(
        "qwen3next",
        layers=3,
        qk_norm=True,
        metadata=DELTA_NET | EXPERTS | {"expert_shared_feed_forward_length": 160},
        one_projection=True,
        layer_tensors=tiny_layers.qwen35,
    ),
    "lfm2": Tiny(
        "lfm2",
        layers=4,
        qk_norm=True,
        metadata={"attention.head_count_kv": [0, 0, 2, 0], "shortconv.l_cache": 3},
        layer_tensors=tiny_layers.lfm2,
        output_norm="token_embd_norm.weight",
    ),
    "lfm2moe": Tiny(
        "lfm2moe",
        layers=3,
        qk_norm=True,
        metadata=EXPERTS
        | {
            "attention.head_count_kv": [0, 3, 0],
            "expert_gating_func": 2,
            "leading_dense_block_count": 1,
            "shortconv.l_cache": 4,
        },
        kv_heads=3,
        layer_tensors=tiny_layers.lfm2,
        output_norm="token_embd_norm.weight",
    ),
    "granitehybrid": Tiny(
        "granitehybrid",
        layers=3,
        metadata=GRANITE | {"rope.scaling.finetuned": False},
        layer_tensors=tiny_layers.granite_hybrid,
    ),
    "granitehybrid-experts": Tiny(
        "granitehybrid",
        layers=3,
        ffn=64,
        tied=False,
        metadata=GRANITE | EXPERTS | {"expert_shared_feed_forward_length": 64, "ssm.group_count": 1},
        layer_tensors=tiny_layers.granite_hybrid,
    ),
    "mamba2": Tiny("mamba2", layers=4, heads=0, metadata=MAMBA2, layer_tensors=tiny_layers.mamba2),
}


def byte_level_vocabulary() -> tuple[list[str], list[int], list[str]]:
    """(tokens, token types, merges) of a byte-level BPE: all bytes, a few merges, the special tokens."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shown = {b: chr(b) for b in printable}
    shown.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in shown)})
    tokens = [shown[b] for b in range(256)]
    merges = ["t h", "th e", "Ġ the", "i n", "a n", "Ġ a", "e r", "o n", "Ġ t", "1 2", "Ġ Ġ"]
    tokens += [merge.replace(" ", "") for merge in merges]
    types = [1] * len(tokens) + [3] * len(SPECIAL_TOKENS)
    return [*tokens, *SPECIAL_TOKENS], types, merges


Quantize = Callable[[NDArray[np.float32], str], NDArray[np.uint8]]


def quantize(values: NDArray[np.float32], weight_type: str) -> NDArray[np.uint8]:
    packed: NDArray[np.uint8] = gguf.quants.quantize(values, gguf.GGMLQuantizationType[weight_type])
    return packed


def write_tiny(
    path: Path, tiny: Tiny, weight_type: str = "F32", seed: int = 0, quantize: Quantize = quantize
) -> Path:
    """Writes the file; matrices in `weight_type`, which by default is one that the gguf package can write."""
    writer = gguf.GGUFWriter(path, tiny.architecture)
    _write_metadata(writer, tiny)
    rng = np.random.default_rng(seed)
    quantization = gguf.GGMLQuantizationType[weight_type]
    for name, shape in _tensors(tiny).items():
        weight = tiny_weights.values(name, shape, rng)
        if name.endswith("ffn_down.weight"):
            weight *= tiny.ffn_scale
        if tiny_weights.is_matrix(name, shape):
            writer.add_tensor(name, quantize(weight, weight_type), raw_dtype=quantization)
        else:
            writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_metadata(writer: gguf.GGUFWriter, tiny: Tiny) -> None:
    tokens, types, merges = byte_level_vocabulary()
    writer.add_block_count(tiny.layers)
    writer.add_context_length(tiny.context)
    writer.add_embedding_length(tiny.width)
    writer.add_feed_forward_length(tiny.ffn)
    writer.add_head_count(tiny.heads)
    if "attention.layer_norm_epsilon" not in tiny.metadata:
        writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    _write_hyperparameters(writer, tiny)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    end, start = len(tokens) - 3, len(tokens) - 2
    writer.add_bos_token_id(start)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)


def _write_hyperparameters(writer: gguf.GGUFWriter, tiny: Tiny) -> None:
    of_attention = {
        "attention.head_count_kv": tiny.kv_heads,
        "attention.key_length": tiny.head_dim,
        "attention.value_length": tiny.head_dim,
        "rope.dimension_count": tiny.head_dim,
        "rope.freq_base": 10000.0,
    }
    add = {
        bool: writer.add_bool,
        float: writer.add_float32,
        int: writer.add_uint32,
        list: writer.add_array,
        str: writer.add_string,
    }
    for key, value in ((of_attention if tiny.heads else {}) | tiny.metadata).items():
        add[type(value)](f"{tiny.architecture}.{key}", value)


def _tensors(tiny: Tiny) -> Tensors:
    """Name -> shape in numpy order."""
    vocab = len(byte_level_vocabulary()[0])
    tensors: Tensors = {"token_embd.weight": (vocab, tiny.width), tiny.output_norm: (tiny.width,)}
    if tiny.norm_bias:
        tensors["output_norm.bias"] = (tiny.width,)
    if not tiny.tied:
        tensors["output.weight"] = (vocab, tiny.width)
    if tiny.output_bias:
        tensors["output.bias"] = (vocab,)
    if tiny.freq_factors:
        tensors["rope_freqs.weight"] = (tiny.head_dim // 2,)
    for layer in range(tiny.layers):
        shapes = tiny.layer_tensors(tiny, layer)
        tensors |= {f"blk.{layer}.{name}": shape for name, shape in shapes.items()}
    return tensors
