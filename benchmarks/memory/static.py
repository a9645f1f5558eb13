"""What KV of a fixed size takes: each of a server's slots has room for a whole context, from the start."""

from __future__ import annotations

from benchmarks.weights.files import BenchFile
from puna.gguf import GgufFile

_HALF_BYTES = 2


def kv_bytes_per_token(file: BenchFile) -> int:
    """Keys and values of all layers as 16-bit floats, in a model whose layers are all alike."""
    with GgufFile(file.path) as gguf:
        metadata = gguf.metadata
    prefix = metadata["general.architecture"]
    width, heads = (
        int(metadata[f"{prefix}.{name}"]) for name in ("embedding_length", "attention.head_count")
    )
    head_dim = int(metadata.get(f"{prefix}.attention.key_length", width // heads))
    kv_heads = int(metadata.get(f"{prefix}.attention.head_count_kv", heads))
    return int(metadata[f"{prefix}.block_count"]) * kv_heads * head_dim * 2 * _HALF_BYTES


def static_kv_bytes(file: BenchFile, context_tokens: int, num_slots: int) -> int:
    return kv_bytes_per_token(file) * context_tokens * num_slots
