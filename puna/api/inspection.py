"""What the weights' file says about a model, read once per file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec

from puna.chat.errors import TemplateError
from puna.chat.template import ChatTemplate
from puna.gguf import GgufFile
from puna.gguf.file_type import parameter_size, quantization_name
from puna.registry import ModelEntry
from puna.registry.create import WeightsDescription


class ModelFacts(msgspec.Struct, frozen=True):
    """The part of a GGUF file's metadata that requests are checked against."""

    capabilities: tuple[str, ...]
    """Only what puna can do with the model."""
    template: str | None
    """The Jinja chat template."""
    template_error: str
    """Why it can't be used, if so."""
    context_length: int
    embedding_length: int


class Inspector:
    """Reads files when they are first asked for. What has been read stays: blobs never change."""

    def __init__(self) -> None:
        self._facts: dict[Path, ModelFacts] = {}

    async def facts(self, model: ModelEntry) -> ModelFacts:
        """Raises GgufError if the file can't be read."""
        path = model.model_path
        if path not in self._facts:
            self._facts[path] = await asyncio.to_thread(_read, path)
        return self._facts[path]

    async def describe(self, descriptor: int) -> WeightsDescription:
        """What a new GGUF file says; the descriptor stays the caller's. Raises GgufError."""
        own = os.dup(descriptor)  # if this is cancelled, the thread still reads
        return await asyncio.to_thread(_describe, own)


def _describe(descriptor: int) -> WeightsDescription:
    try:
        with GgufFile.from_descriptor(descriptor, "the file") as file:
            return WeightsDescription(
                architecture=str(file.metadata.get("general.architecture", "unknown")),
                parameter_size=parameter_size(file.tensors),
                quantization=quantization_name(file.metadata, file.tensors),
            )
    finally:
        os.close(descriptor)


def _read(path: Path) -> ModelFacts:
    with GgufFile(path) as file:
        metadata = file.metadata
        architecture = metadata.get("general.architecture", "")
        template = metadata.get("tokenizer.chat_template")
        can_think, template_error = _examine(template)
        is_embedding = f"{architecture}.pooling_type" in metadata
        return ModelFacts(
            capabilities=() if is_embedding else ("completion", "thinking") if can_think else ("completion",),
            template=template,
            template_error=template_error,
            context_length=_count(metadata.get(f"{architecture}.context_length")),
            embedding_length=_count(metadata.get(f"{architecture}.embedding_length")),
        )


def _examine(source: Any) -> tuple[bool, str]:
    """Whether a model with this template can think, and what is wrong with the template."""
    if source is None:
        return False, ""
    try:
        return ChatTemplate(source, bos_token="", eos_token="").supports_thinking, ""
    except TemplateError as error:
        return False, str(error)


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0
