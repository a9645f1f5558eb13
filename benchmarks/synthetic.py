"""A file of the shape of Qwen3-4B in Q4_K_M with random weights: speed does not depend on their values."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray

from benchmarks.recipes import FILE_TYPES, Shape, type_of

LAYERS, WIDTH, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 36, 2560, 9728, 32, 8, 128, 151936
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHUNK_BYTES = 16 << 20


def write_qwen3_4b(target: Path) -> None:
    """Writes 2.5 GB, tensor by tensor; no tensor is in memory as a whole."""
    writer = GGUFWriter(target, "qwen3")
    _add_metadata(writer)
    _add_vocabulary(writer)
    shapes = list(_shapes())
    types = {shape.name: GGMLQuantizationType[_type(shape)] for shape in shapes}
    for shape in shapes:
        dims = (shape.rows, shape.cols) if shape.cols else (shape.rows,)
        num_bytes = _num_bytes(dims, types[shape.name])
        writer.add_tensor_info(shape.name, dims, np.dtype(np.float32), num_bytes, types[shape.name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    assert writer.fout is not None
    out = writer.fout[0]
    rng = np.random.default_rng(0)
    for shape in shapes:
        out.write(bytes(-out.tell() % writer.data_alignment))
        for chunk in _random_data(shape, types[shape.name], rng):
            out.write(chunk.tobytes())
    out.write(bytes(-out.tell() % writer.data_alignment))
    writer.close()


def _type(shape: Shape) -> str:
    return type_of(shape, "Q4_K_M") if shape.cols else "F32"


def _shapes() -> Iterator[Shape]:
    """Vectors have no columns."""

    def shape(name: str, rows: int, cols: int = 0, layer: int = -1, *, is_output: bool = False) -> Shape:
        return Shape(f"{name}.weight", rows, cols, layer, LAYERS, is_output)

    yield shape("token_embd", VOCABULARY, WIDTH, is_output=True)
    yield shape("output_norm", WIDTH)
    for i in range(LAYERS):
        yield shape(f"blk.{i}.attn_norm", WIDTH)
        yield shape(f"blk.{i}.attn_q", HEADS * HEAD_DIM, WIDTH, i)
        yield shape(f"blk.{i}.attn_k", KV_HEADS * HEAD_DIM, WIDTH, i)
        yield shape(f"blk.{i}.attn_v", KV_HEADS * HEAD_DIM, WIDTH, i)
        yield shape(f"blk.{i}.attn_q_norm", HEAD_DIM)
        yield shape(f"blk.{i}.attn_k_norm", HEAD_DIM)
        yield shape(f"blk.{i}.attn_output", WIDTH, HEADS * HEAD_DIM, i)
        yield shape(f"blk.{i}.ffn_norm", WIDTH)
        yield shape(f"blk.{i}.ffn_gate", FFN, WIDTH, i)
        yield shape(f"blk.{i}.ffn_up", FFN, WIDTH, i)
        yield shape(f"blk.{i}.ffn_down", WIDTH, FFN, i)


def _num_bytes(dims: tuple[int, ...], weight_type: GGMLQuantizationType) -> int:
    block_values, block_bytes = gguf.GGML_QUANT_SIZES[weight_type]
    return int(np.prod(dims)) // block_values * block_bytes


def _random_data(
    shape: Shape, weight_type: GGMLQuantizationType, rng: np.random.Generator
) -> Iterator[NDArray[np.generic]]:
    if not shape.cols:
        yield np.ones(shape.rows, np.float32)
        return
    block_bytes = gguf.GGML_QUANT_SIZES[weight_type][1]
    num_blocks = _num_bytes((shape.rows, shape.cols), weight_type) // block_bytes
    per_chunk = _CHUNK_BYTES // block_bytes
    for start in range(0, num_blocks, per_chunk):
        count = min(per_chunk, num_blocks - start)
        blocks = np.frombuffer(rng.bytes(count * block_bytes), np.uint8).reshape(count, block_bytes).copy()
        _set_scales(blocks, weight_type, 1 / np.sqrt(shape.cols))
        yield blocks


def _set_scales(blocks: NDArray[np.uint8], weight_type: GGMLQuantizationType, deviation: float) -> None:
    """Half floats that give values around zero of about this standard deviation."""
    if weight_type == GGMLQuantizationType.Q4_K:  # d * scale * q - dmin * min, with scale, min in 0..63
        d = deviation / (32 * 4.6)
        blocks[:, 0:4] = np.array([d, 7.5 * d], np.float16).view(np.uint8)
    else:
        assert weight_type == GGMLQuantizationType.Q6_K  # d * scale * (q - 32), scale in -128..127
        blocks[:, 208:210] = np.array([deviation / (74 * 18.5)], np.float16).view(np.uint8)


def _add_metadata(writer: GGUFWriter) -> None:
    writer.add_name("Synthetic, shape of Qwen3-4B")
    writer.add_file_type(FILE_TYPES["Q4_K_M"])
    writer.add_block_count(LAYERS)
    writer.add_context_length(40960)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)


def _add_vocabulary(writer: GGUFWriter) -> None:
    """A byte-level BPE of the right size: all bytes, pairs of letters, and as many pairs of pairs as fit."""
    letters = string.ascii_lowercase
    tokens = [_shown(byte) for byte in range(256)]
    pairs = [a + b for a in letters for b in letters]
    num_quads = VOCABULARY - len(tokens) - len(pairs) - len(SPECIAL)
    quads = list(itertools.islice(itertools.product(pairs, pairs), num_quads))
    merges = [f"{a} {b}" for a, b in itertools.chain(pairs, quads)]
    tokens += [*pairs, *(a + b for a, b in quads)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, *SPECIAL])
    writer.add_token_types([1] * len(tokens) + [3] * len(SPECIAL))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(VOCABULARY - 3)
    writer.add_eos_token_id(VOCABULARY - 1)
    writer.add_add_bos_token(False)


def _shown(byte: int) -> str:
    """The character that stands for a byte in a byte-level BPE."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in printable:
        return chr(byte)
    return chr(256 + [b for b in range(256) if b not in printable].index(byte))
