"""A model's record, from its file."""

from __future__ import annotations

import math
from typing import Any

from puna.chat.model_record import ModelRecord
from puna.chat.template import mentions_tools, writes_thoughts
from puna.gguf import Metadata
from puna.gguf.file_type import parameter_size, quantization_name

TEMPLATE_KEY = "tokenizer.chat_template"
_MAX_CHARS = 200
_MAX_COUNT = (1 << 63) - 1


def read_record(metadata: Metadata) -> ModelRecord:
    """The template is looked at as a text, not compiled: lists of models come here. Raises GgufError."""
    architecture = metadata.get("general.architecture", "")
    source = metadata.get(TEMPLATE_KEY)
    capabilities = ["completion"]
    if isinstance(source, str):
        capabilities += ["tools"] if mentions_tools(source) else []
        capabilities += ["thinking"] if writes_thoughts(source) else []
    is_embedding = f"{architecture}.pooling_type" in metadata
    tensors = metadata.tensors
    return ModelRecord(
        architecture=_bounded(architecture),
        capabilities=() if is_embedding else tuple(capabilities),
        has_template=source is not None,
        context_length=_count(metadata.get(f"{architecture}.context_length")),
        embedding_length=_count(metadata.get(f"{architecture}.embedding_length")),
        parameter_count=_count(sum(math.prod(tensor.shape) for tensor in tensors.values())),
        parameter_size=_bounded(parameter_size(tensors)),
        quantization=_bounded(quantization_name(metadata, tensors)),
        weight_bytes=_count(sum(tensor.num_bytes for tensor in tensors.values())),
    )


def _bounded(value: Any) -> str:
    """Also without the surrogates that stand for bytes which are not UTF-8."""
    return str(value)[:_MAX_CHARS].encode(errors="replace").decode()


def _count(value: Any) -> int:
    return min(max(value, 0), _MAX_COUNT) if isinstance(value, int) else 0
