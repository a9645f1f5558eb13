"""Real models with chat templates that have tools, in the way of Hermes."""

from __future__ import annotations

from pathlib import Path

import gguf

from benchmarks.weights.variants import copy_metadata
from tests.api.ggufs import CALLING


def write_tool_model(smollm2: Path, target: Path) -> None:
    """smollm2: the model's own file."""
    write_with_template(smollm2, target, "llama", CALLING)


def write_with_template(source: Path, target: Path, architecture: str, template: str) -> None:
    """The model of `source`, which is of this architecture, with another chat template."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, architecture)
    copy_metadata(reader, writer, prefix=f"{architecture}.")
    copy_metadata(reader, writer, prefix="tokenizer.ggml.")
    writer.add_chat_template(template)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
