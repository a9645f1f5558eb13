"""Files that are written are what another reader, and ours, reads."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from puna.gguf import GgufFile
from puna.gguf.writer import (
    GgufValue,
    NewTensor,
    array,
    boolean,
    float32,
    string,
    strings,
    uint32,
    write_header,
)

pytestmark = pytest.mark.native

METADATA = {
    "general.architecture": string("llama"),
    "a.count": uint32(1 << 31),
    "a.share": float32(0.1),
    "a.flag": boolean(True),
    "a.flags": array("bool", [True, False]),
    "a.texts": strings(["", "ä", "\udcff"]),
    "a.numbers": array("int32", [-1, 2, 3]),
    "a.wide": GgufValue("uint64", 1 << 63),
}
VALUES = {"f": np.arange(15, dtype=np.float32).reshape(3, 5), "h": np.arange(7, dtype=np.float16)}


def test_what_is_written_is_read(tmp_path: Path):
    tensors = [NewTensor("f", "F32", (5, 3)), NewTensor("h", "F16", (7,)), NewTensor("q", "Q4_K", (512, 3))]
    blocks = np.arange(3 * 2 * 144, dtype=np.uint8)
    with (tmp_path / "a.gguf").open("wb") as file:
        layout = write_header(file, METADATA, tensors)
        for offset, data in reversed([*zip(layout.offsets, [*VALUES.values(), blocks], strict=True)]):
            file.seek(offset)
            file.write(data.tobytes())
    assert (tmp_path / "a.gguf").stat().st_size == layout.num_bytes
    reader = gguf.GGUFReader(tmp_path / "a.gguf")
    assert {tensor.name: tensor.data.tolist() for tensor in reader.tensors[:2]} == {
        name: values.tolist() for name, values in VALUES.items()
    }
    assert reader.tensors[2].data.reshape(-1).tolist() == blocks.tolist()
    with GgufFile(tmp_path / "a.gguf") as ours:
        read = {
            key: value.tolist() if isinstance(value, np.ndarray) else value
            for key, value in ours.metadata.items()
        }
        assert read == {key: value.value for key, value in METADATA.items()} | {"a.share": np.float32(0.1)}
        assert [(t.name, t.type, t.shape) for t in ours.tensors.values()] == [
            (t.name, t.type, t.shape) for t in tensors
        ]
