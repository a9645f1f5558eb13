"""What the weights' file says about a model, read once per file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from puna.chat.template import ChatTemplate, TemplateError
from puna.gguf import GgufFile
from puna.registry import StoredModel


class ModelFacts(msgspec.Struct, frozen=True):
    """The part of a GGUF file's metadata that requests are checked against."""

    capabilities: tuple[str, ...]
    """Only what puna can do with the model."""
    template: str | None
    """The Jinja chat template."""
    context_length: int
    embedding_length: int


class Inspector:
    """Reads files when they are first asked for. What has been read stays: blobs never change."""

    def __init__(self) -> None:
        self._facts: dict[Path, ModelFacts] = {}

    async def facts(self, model: StoredModel) -> ModelFacts:
        """Raises GgufError if the file can't be read."""
        path = model.model_path
        if path not in self._facts:
            self._facts[path] = await asyncio.to_thread(_read, path)
        return self._facts[path]


def _read(path: Path) -> ModelFacts:
    with GgufFile(path) as file:
        metadata = file.metadata
        architecture = metadata.get("general.architecture", "")
        template = metadata.get("tokenizer.chat_template")
        is_embedding = f"{architecture}.pooling_type" in metadata
        return ModelFacts(
            capabilities=() if is_embedding else ("completion", *_template_capabilities(template)),
            template=template if isinstance(template, str) else None,
            context_length=_count(metadata.get(f"{architecture}.context_length")),
            embedding_length=_count(metadata.get(f"{architecture}.embedding_length")),
        )


def _template_capabilities(source: Any) -> list[str]:
    try:
        template = ChatTemplate(source, bos_token="", eos_token="")
    except TemplateError:
        return []
    return ["thinking"] if template.supports_thinking else []


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0
