"""Real models with chat templates that have tools, in the way of Hermes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf

from benchmarks.weights.variants import copy_metadata
from puna.registry import ModelName, Store
from puna.registry.creation.from_gguf import create_from_gguf
from tests.api.ggufs import CALLING
from tests.descriptions import SMOLLM2_WEIGHTS
from tests.e2e.launching import address_of, launch


@contextmanager
def serving_tool_model(smollm2: Path, directory: Path, name: str) -> Iterator[str]:
    """The URL of a daemon whose store has the model. smollm2: its own file."""
    store = Store(directory / "models")
    path = directory / "caller.gguf"
    write_with_template(smollm2, path, "llama", CALLING)
    digest = store.add_blob([path.read_bytes()])
    path.unlink()
    create_from_gguf(store, ModelName.parse(name), digest, SMOLLM2_WEIGHTS)
    daemon = launch(store.root, PUNA_KV_DISK="0")
    try:
        yield f"http://{address_of(daemon)}"
    finally:
        daemon.terminate()
        daemon.wait(timeout=30)
        daemon.stderr.close()


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
