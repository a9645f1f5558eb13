"""Writes a tiny model with random weights as a GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.tiny import weights
from tests.tiny.tensors.layers import Tensors, head, is_head, transformer

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
    shared_metadata: dict[str, Any] = field(default_factory=dict)
    """Whose keys do not begin with the architecture."""
    freq_factors: bool = False
    long_factors: bool = False
    """Of frequencies, and others for short contexts."""
    positions: bool = False
    """Whether they are learned."""
    choice_bias: bool = False
    """Of which experts are chosen."""
    one_projection: bool = False
    """Of what a delta net is made of, as in older files of Qwen3-Next."""
    layer_tensors: Callable[[Tiny, int], Tensors] = transformer
    model_tensors: Callable[[Tiny, int], Tensors] = lambda _tiny, _vocab: {}
    """Further ones that are no layer's."""
    blocks: str = "blk"
    output_norm: str = "output_norm.weight"
    """"": without one."""
    embedding_scale: float = 1.0
    """Of the values of token_embd."""
    embedding_norm: bool = False
    norm_bias: bool = False
    """Of the last norm."""
    output_bias: bool = False
    ffn_scale: float = 1.0
    """Of what the feed-forward part adds: little of GELU, which llama.cpp rounds to half precision."""
    attention_scale: float = 1.0
    """Of what attention adds, where a norm says how much."""


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
Values = Callable[[str, tuple[int, ...], np.random.Generator], NDArray[np.float32]]


def quantize(values: NDArray[np.float32], weight_type: str) -> NDArray[np.uint8]:
    packed: NDArray[np.uint8] = gguf.quants.quantize(values, gguf.GGMLQuantizationType[weight_type])
    return packed


def write_tiny(
    path: Path,
    tiny: Tiny,
    weight_type: str = "F32",
    seed: int = 0,
    quantize: Quantize = quantize,
    values: Values = weights.values,
    change: Callable[[str, NDArray[np.float32]], NDArray[np.float32]] = lambda _, weight: weight,
) -> Path:
    """Writes the file; matrices in `weight_type`, which by default is one that the gguf package can write.

    values: those of a tensor. change: (name, values) -> those to be written.
    """
    writer = gguf.GGUFWriter(path, tiny.architecture)
    _write_metadata(writer, tiny)
    rng = np.random.default_rng(seed)
    quantization = gguf.GGMLQuantizationType[weight_type]
    for name, shape in _tensors(tiny).items():
        weight = values(name, shape, rng)
        if name.endswith(("ffn_down.weight", "post_ffw_norm.weight", ".post_norm.weight")):
            weight *= tiny.ffn_scale
        if name == "token_embd.weight":
            embedding = weight
            weight = weight * np.float32(tiny.embedding_scale)
        if name == "output.weight":  # as if tied, or what is likeliest would hang on roundings
            weight += embedding
        if name.endswith(("post_attention_norm.weight", "laurel_post_norm.weight")):
            weight *= tiny.attention_scale
        weight = change(name, weight)
        if weights.is_matrix(name, shape):
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
    if "feed_forward_length" not in tiny.metadata:
        writer.add_feed_forward_length(tiny.ffn)
    if "attention.head_count" not in tiny.metadata:
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
    if "tokenizer.ggml.add_bos_token" not in tiny.shared_metadata:
        writer.add_add_bos_token(False)
    if "token_types.weight" in _tensors(tiny):
        writer.add_token_type_count(2)


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
    of_architecture = (of_attention if tiny.heads else {}) | tiny.metadata
    prefixed = {f"{tiny.architecture}.{key}": value for key, value in of_architecture.items()}
    for key, value in (prefixed | tiny.shared_metadata).items():
        add[type(value)](key, value)


def _tensors(tiny: Tiny) -> Tensors:
    """Name -> shape in numpy order."""
    vocab = len(byte_level_vocabulary()[0])
    tensors: Tensors = {"token_embd.weight": (vocab, tiny.width)}
    if tiny.output_norm:
        tensors[tiny.output_norm] = (tiny.width,)
    if tiny.embedding_norm:
        tensors |= {f"token_embd_norm.{kind}": (tiny.width,) for kind in ("weight", "bias")}
    if tiny.norm_bias:
        tensors["output_norm.bias"] = (tiny.width,)
    if not tiny.tied:
        tensors["output.weight"] = (vocab, tiny.width)
    if tiny.output_bias:
        tensors["output.bias"] = (vocab,)
    if tiny.freq_factors:
        tensors["rope_freqs.weight"] = (tiny.head_dim // 2,)
    if tiny.positions:
        tensors["position_embd.weight"] = (tiny.context, tiny.width)
    if tiny.long_factors:
        names = ("rope_factors_long.weight", "rope_factors_short.weight")
        tensors |= dict.fromkeys(names, (tiny.head_dim // 2,))
    tensors |= tiny.model_tensors(tiny, vocab)
    for layer in range(tiny.layers):
        shapes = tiny.layer_tensors(tiny, layer) | (head(tiny, vocab) if is_head(tiny, layer) else {})
        tensors |= {f"{tiny.blocks}.{layer}.{name}": shape for name, shape in shapes.items()}
    return tensors
