"""The files that mutants are made of: small, and together with one of everything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.gguf.encode import ARRAY, FLOAT32, INT32, STRING, UINT32, array, string, u32
from tests.hostile.gguf.content import Content, Value, parse, string_array
from tests.tiny import TINY, Tiny, write_tiny
from tests.tiny.published import write_both

_SMALL = {"layers": 1, "width": 32, "heads": 2, "kv_heads": 1, "ffn": 32, "context": 64}
_FILES = {
    "llama": "F32",
    "llama-untied": "Q4_0",
    "llama-rope-factors": "Q8_0",
    "llama-yarn": "F16",
    "qwen2": "Q5_1",
    "qwen3": "BF16",
    "qwen3moe": "Q4_0",
    "gpt-oss": "Q8_0",
    "deepseek2": "F32",
    "mamba2": "F32",
}
_AS_THEY_ARE = {"qwen35": "Q8_0", "lfm2": "F32"}  # whose metadata tells of each of their layers


def base_contents(directory: Path) -> list[Content]:
    """directory: where they are written first."""
    small = [_model(directory / name, replace(TINY[name], **_SMALL), type_) for name, type_ in _FILES.items()]
    others = [_model(directory / name, TINY[name], type_) for name, type_ in _AS_THEY_ARE.items()]
    _, published = write_both(directory, "qwen35moe-head")
    return [*small, *others, parse(published.read_bytes()), _sentencepiece(small[0])]


def _model(path: Path, tiny: Tiny, weight_type: str) -> Content:
    return parse(write_tiny(path, tiny, weight_type).read_bytes())


def _sentencepiece(model: Content) -> Content:
    """The same model with a SentencePiece vocabulary, a chat template and nested arrays."""
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 3, *([6] * 256)]
    words = ["▁", "t", "h", "e", "th", "the", "▁the", "q", "u", "qu", "▁qu"]
    tokens = [text.encode() for text in [*texts, *words]]
    types = np.array([*kinds, *([1] * len(words))], "<i4")
    scores = -np.arange(len(tokens), dtype="<f4")
    nested = array(ARRAY, 2, string_array([b"a", b""]) + array(INT32, 2, u32(1) + u32(2)))
    replaced = {
        "tokenizer.ggml.model": (STRING, string("llama")),
        "tokenizer.ggml.tokens": (ARRAY, string_array(tokens)),
        "tokenizer.ggml.scores": (ARRAY, array(FLOAT32, len(tokens), scores.tobytes())),
        "tokenizer.ggml.token_type": (ARRAY, array(INT32, len(tokens), types.tobytes())),
        "tokenizer.ggml.bos_token_id": (UINT32, u32(1)),
        "tokenizer.ggml.eos_token_id": (UINT32, u32(2)),
        "tokenizer.chat_template": (STRING, string("{% for m in messages %}{{ m.content }}{% endfor %}")),
        "general.tags": (ARRAY, nested),
    }
    kept = [v for v in model.values if v.key.decode() not in {*replaced, "tokenizer.ggml.merges"}]
    added = [Value(key.encode(), kind, data) for key, (kind, data) in replaced.items()]
    return replace(model, values=[*kept, *added])
