"""Everything that puna does with a model file before it answers the first request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from puna._native import NativeError
from puna.backends.base import Batch, KvReservation, ModelInfo, ModelLoadError, ModelSource
from puna.backends.cpu import CpuBackend
from puna.chat.errors import TemplateError
from puna.chat.templates.template import ChatTemplate
from puna.gguf import GgufError, Metadata, read_metadata
from puna.gguf.file_type import parameter_size, quantization_name
from puna.tokenizer import TokenizerError, load_tokenizer

TEXT = "The quick brown fox <|im_end|> 12 über\n🦙 \x00\xff"


def use(file: bytes, backend: CpuBackend) -> str:
    """How far the file came. Raises nothing for any file: what it may be refused with is caught here."""
    with descriptor_of(file) as descriptor:
        try:
            metadata = read_metadata(descriptor, "file")
        except GgufError as error:
            return _refused("header", error)
        _read_all(metadata)
        tokenizer = _use_tokenizer(metadata)
        return f"{tokenizer}, {_use_model(descriptor, backend)}"


def _read_all(metadata: Metadata) -> None:
    for key in metadata:
        value = metadata[key]
        if metadata.info(key).type == "array":
            assert (
                sum(len(chunk) for chunk in metadata.chunks(key))
                == metadata.info(key).num_items
                == len(value)
            )
    assert parameter_size(metadata.tensors)
    assert quantization_name(metadata, metadata.tensors)


def _use_tokenizer(metadata: Metadata) -> str:
    try:
        tokenizer = load_tokenizer(metadata)
    except TokenizerError as error:
        return _refused("tokenizer", error)
    tokenizer.encode(TEXT)
    with suppress(TemplateError):
        ChatTemplate.for_tokenizer(metadata.get("tokenizer.chat_template"), tokenizer)
    return "tokenizer"


def _use_model(descriptor: int, backend: CpuBackend) -> str:
    try:
        use_model(descriptor, backend)
    except ModelLoadError as error:
        return _refused("model", error)
    except NativeError as error:
        return _refused("step", error)
    return "step"


def use_model(descriptor: int, backend: CpuBackend) -> None:
    """Loads it and makes a step. Raises ModelLoadError, or NativeError for the step."""
    model = backend.load(ModelSource("file", (descriptor,)))
    try:
        kv_bytes = model.info.block_bytes + model.info.state_bytes
        memories = model.reserve(KvReservation(kv_bytes, kv_bytes, 1, static_states=1))
        model.logits(_first_step(model.info), memories)
        for memory in memories:
            memory.close()
    finally:
        model.close()


def _first_step(info: ModelInfo) -> Batch:
    tokens = np.arange(min(info.vocab_size, 5), dtype=np.int32)
    tables = [[[-1, 0]] if group.is_state else [[0]] for group in info.groups]
    return Batch(
        tokens=tokens,
        positions=np.arange(len(tokens), dtype=np.int32),
        sequence_starts=np.array([0, len(tokens)], dtype=np.int32),
        block_tables=tuple(np.array(table, dtype=np.int32) for table in tables),
        rows=np.array([len(tokens) - 1], dtype=np.int32),
    )


def _refused(stage: str, error: Exception) -> str:
    text = str(error)
    assert len(text) < 1024, f"{stage}: an error text of {len(text)} characters"
    return f"no {stage}"


@contextmanager
def descriptor_of(file: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("file")
    try:
        os.write(descriptor, file)
        yield descriptor
    finally:
        os.close(descriptor)
