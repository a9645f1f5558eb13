"""What the worker reads of a model's file before the server does."""

from __future__ import annotations

import logging
import os
from typing import Any

import msgspec

from puna.backends.base import ModelLoadError
from puna.config.sizes import binary_size
from puna.gguf import GgufError, read_metadata
from puna.gguf.pooling import POOLING_TYPES, Pooling
from puna.gguf.translated_file import write_translated
from puna.models.hyperparameters import HyperparameterError
from puna.models.kind import check_is_model

log = logging.getLogger(__name__)


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """Of a GGUF file."""

    architecture: str
    context_length: int
    """0: it does not say."""
    num_layers: int
    weight_bytes: int
    bos_id: int | None
    is_embedding: bool
    pooling: Pooling


def read_model_file(descriptor: int, name: str) -> ModelFile:
    """Raises ModelLoadError."""
    try:
        metadata = read_metadata(descriptor, name, as_stored=True)
        check_is_model(metadata)
        architecture = metadata.get("general.architecture")
        if not isinstance(architecture, str):
            raise ModelLoadError(f"{name}: general.architecture is missing")

        def count(key: str) -> int:
            value: Any = metadata.get(f"{architecture}.{key}", 0)
            return value if isinstance(value, int) and value > 0 else 0

        kind = count("pooling_type")
        is_embedding = f"{architecture}.pooling_type" in metadata
        return ModelFile(
            architecture=architecture,
            context_length=count("context_length"),
            num_layers=count("block_count"),
            weight_bytes=sum(tensor.num_bytes for tensor in metadata.tensors.values()),
            bos_id=bos_id if isinstance(bos_id := metadata.get("tokenizer.ggml.bos_token_id"), int) else None,
            is_embedding=is_embedding,
            pooling=(POOLING_TYPES[kind] if kind < len(POOLING_TYPES) else None) or "last",
        )
    except (GgufError, HyperparameterError) as error:
        text = str(error)
        raise ModelLoadError(text if text.startswith(name) else f"{name}: {text}") from error


def file_for_server(model: int, empty: int, name: str) -> int:
    """The file's own descriptor; or, if it is in a form of Ollama's that llama.cpp does not read, that of the
    empty file, into which it has been written anew. Raises ModelLoadError.
    """
    try:
        metadata = read_metadata(model, name, as_stored=True)
        if not metadata.is_translated:
            return model
        os.ftruncate(empty, 0)  # an earlier worker may have written it
        os.lseek(empty, 0, os.SEEK_SET)
        written = write_translated(metadata, model, empty)
    except GgufError as error:
        raise ModelLoadError(str(error)) from error
    except OSError as error:
        needed = binary_size(os.fstat(model).st_size)
        text = f"{name} has to be written anew for llama.cpp's server, {needed} on disk: {error.strerror}"
        raise ModelLoadError(text) from error
    sizes = map(binary_size, (written.num_bytes, written.shared_bytes))
    log.info(
        "%s was written anew for llama.cpp's server: %s, of which %s are shared with its file", name, *sizes
    )
    return empty
