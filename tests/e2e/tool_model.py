"""SmolLM2-135M with a chat template that has tools, in the way of Hermes."""

from __future__ import annotations

from pathlib import Path

import gguf

from benchmarks.variants import copy_metadata
from tests.api.ggufs import CALLING


def write_tool_model(smollm2: Path, target: Path) -> None:
    """smollm2: the model's own file."""
    reader = gguf.GGUFReader(smollm2)
    writer = gguf.GGUFWriter(target, "llama")
    copy_metadata(reader, writer, prefix="llama.")
    copy_metadata(reader, writer, prefix="tokenizer.ggml.")
    writer.add_chat_template(CALLING)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
