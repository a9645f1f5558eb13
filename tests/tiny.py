"""Tiny random-weight GGUF files of each architecture: one table row each, checked alike everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

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


TINY = {
    "llama": Tiny("llama"),
    "llama-untied": Tiny("llama", layers=3, kv_heads=6, tied=False),
    "llama-rope-factors": Tiny("llama", freq_factors=True, head_dim=32),
    "llama-window": Tiny("llama", metadata={"attention.sliding_window": 37}),  # which nobody heeds
    "llama-linear": Tiny("llama", metadata={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "llama-yarn": Tiny(
        "llama",
        head_dim=64,
        metadata={
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 512,
        },
    ),
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
    "qwen3": Tiny("qwen3", qk_norm=True, head_dim=32),
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
        if name == "rope_freqs.weight":
            writer.add_tensor(name, np.linspace(1.0, 8.0, shape[0]).astype(np.float32))
        elif len(shape) == 1:
            centre = 0.0 if name.endswith(".bias") else 1.0
            if name.endswith("post_ffw_norm.weight"):
                centre = 0.1  # llama.cpp rounds GELU to half precision: let little come of it
            writer.add_tensor(name, (centre + 0.1 * rng.standard_normal(shape)).astype(np.float32))
        else:
            weight = (rng.standard_normal(shape) * 0.7 / np.sqrt(shape[1])).astype(np.float32)
            if name == "token_embd.weight":
                weight *= np.float32(3.0)
            writer.add_tensor(name, quantize(weight, weight_type), raw_dtype=quantization)
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
    writer.add_head_count_kv(tiny.kv_heads)
    writer.add_key_length(tiny.head_dim)
    writer.add_value_length(tiny.head_dim)
    writer.add_rope_dimension_count(tiny.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    for key, value in tiny.metadata.items():
        add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)]
        add(f"{tiny.architecture}.{key}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    end, start = len(tokens) - 3, len(tokens) - 2
    writer.add_bos_token_id(start)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)


def _tensors(tiny: Tiny) -> dict[str, tuple[int, ...]]:
    """Name -> shape in numpy order."""
    q, kv = tiny.heads * tiny.head_dim, tiny.kv_heads * tiny.head_dim
    vocab = len(byte_level_vocabulary()[0])
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab, tiny.width),
        "output_norm.weight": (tiny.width,),
    }
    if not tiny.tied:
        shapes["output.weight"] = (vocab, tiny.width)
    if tiny.freq_factors:
        shapes["rope_freqs.weight"] = (tiny.head_dim // 2,)
    for i in range(tiny.layers):
        layer: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (tiny.width,),
            "attn_q.weight": (q, tiny.width),
            "attn_k.weight": (kv, tiny.width),
            "attn_v.weight": (kv, tiny.width),
            "attn_output.weight": (tiny.width, q),
            "ffn_norm.weight": (tiny.width,),
            "ffn_gate.weight": (tiny.ffn, tiny.width),
            "ffn_up.weight": (tiny.ffn, tiny.width),
            "ffn_down.weight": (tiny.width, tiny.ffn),
        }
        if tiny.qkv_bias:
            layer |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
        if tiny.post_norm:
            layer |= {"post_attention_norm.weight": (tiny.width,), "post_ffw_norm.weight": (tiny.width,)}
        if tiny.qk_norm:
            layer |= {"attn_q_norm.weight": (tiny.head_dim,), "attn_k_norm.weight": (tiny.head_dim,)}
        shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
    return shapes
