"""The four models."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from benchmarks.weights.files import BenchFile, bench_file, made_file
from benchmarks.weights.minilm import minilm_file

EMBED, RERANK, ANSWER, TITLE = "embed", "rerank", "answer", "title"
_RANKS = 4  # pooling type


def model_files() -> dict[str, BenchFile]:
    """By what they do. The reranker has the embedder's weights and a head of random ones."""
    embedder = minilm_file("F16")
    reranker = made_file(
        "reranker:synthetic",
        "MiniLM with a random head F16",
        lambda path: _write_reranker(embedder.path, path),
    )
    return {EMBED: embedder, RERANK: reranker, ANSWER: bench_file("Gemma3"), TITLE: bench_file("Q4_1")}


def _write_reranker(source: Path, target: Path) -> None:
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "bert")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "bert.pooling_type"):
            continue
        kind = field.types[0]
        element = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub_type=element)
    writer.add_pooling_type(gguf.PoolingType(_RANKS))
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    rng, width = np.random.default_rng(5), int(reader.fields["bert.embedding_length"].contents())
    for name, shape in {"cls": (width, width), "cls.output": (1, width)}.items():
        writer.add_tensor(f"{name}.weight", (rng.standard_normal(shape) / np.sqrt(width)).astype(np.float32))
        writer.add_tensor(f"{name}.bias", np.zeros(shape[0], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
