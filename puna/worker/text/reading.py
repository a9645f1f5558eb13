"""A model's record, from its file and from what its manifest says of templates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from puna.chat.errors import TemplateError
from puna.chat.model_record import ModelRecord
from puna.chat.templates.choice import Choice, choose
from puna.chat.templates.model_templates import ModelTemplates
from puna.gguf import Metadata
from puna.gguf.file_type import parameter_size, quantization_name
from puna.gguf.pooling import POOLING_TYPES
from puna.gguf.projectors import ARCHITECTURES

TEMPLATE_KEY = "tokenizer.chat_template"
_RANKS = POOLING_TYPES.index("rank")
_MAX_CHARS = 200
_MAX_COUNT = (1 << 63) - 1
_FILL_IN_KEYS = (
    ("fim_pre_token_id", "prefix_token_id"),
    ("fim_suf_token_id", "suffix_token_id"),
    ("fim_mid_token_id", "middle_token_id"),
)


def read_record(metadata: Metadata, templates: ModelTemplates) -> ModelRecord:
    """A Jinja template is looked at as a text, not compiled: lists of models come here. Raises GgufError."""
    architecture = metadata.get("general.architecture", "")
    choice = _choice(metadata, templates)
    tensors = metadata.tensors
    return ModelRecord(
        kind=_bounded(_kind(metadata, architecture)),
        num_parts=max(_count(metadata.get("split.count")), 1),
        architecture=_bounded(architecture),
        capabilities=tuple(_capabilities(metadata, architecture, choice)),
        has_projector=str(architecture) in ARCHITECTURES and f"{architecture}.vision.block_count" in metadata,
        template_source=choice.source,
        think_levels=choice.think_levels,
        context_length=_count(metadata.get(f"{architecture}.context_length")),
        embedding_length=_count(metadata.get(f"{architecture}.embedding_length")),
        parameter_count=_count(sum(math.prod(tensor.shape) for tensor in tensors.values())),
        parameter_size=_bounded(parameter_size(tensors)),
        quantization=_bounded(quantization_name(metadata, tensors)),
        weight_bytes=_count(sum(tensor.num_bytes for tensor in tensors.values())),
    )


def fill_in_tokens(metadata: Mapping[str, Any]) -> list[int]:
    """Those before a text, before what follows a gap, and before what belongs into it; none if the file does
    not name all three.
    """
    tokens = []
    for keys in _FILL_IN_KEYS:
        found = [metadata.get(f"tokenizer.ggml.{key}") for key in keys]
        tokens += [token for token in found if isinstance(token, int) and token >= 0][:1]
    return tokens if len(tokens) == len(_FILL_IN_KEYS) else []


def _kind(metadata: Metadata, architecture: str) -> str:
    if architecture == "clip":  # also of files that do not say it
        return "projector"
    kind = metadata.get("general.type", "model")
    return "projector" if kind == "mmproj" else kind


def _choice(metadata: Metadata, templates: ModelTemplates) -> Choice:
    """None of the templates if that cannot be told: who asks for a prompt learns why."""
    try:
        return choose(metadata.get(TEMPLATE_KEY), templates)
    except TemplateError:
        return Choice("none")


def _capabilities(metadata: Metadata, architecture: str, choice: Choice) -> list[str]:
    pooling = metadata.get(f"{architecture}.pooling_type")
    is_embedding = pooling is not None
    found = ["rerank" if pooling == _RANKS else "embedding" if is_embedding else "completion"]
    found += [kind for kind in ("vision", "audio") if f"{architecture}.{kind}.block_count" in metadata]
    found += choice.capabilities
    if "insert" not in found and not is_embedding and fill_in_tokens(metadata):
        found.append("insert")
    return found


def _bounded(value: Any) -> str:
    """Also without the surrogates that stand for bytes which are not UTF-8."""
    return str(value)[:_MAX_CHARS].encode(errors="replace").decode()


def _count(value: Any) -> int:
    return min(max(value, 0), _MAX_COUNT) if isinstance(value, int) else 0
