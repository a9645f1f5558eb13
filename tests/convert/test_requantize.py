"""GGUF files become ones of another quantization; what is not weights stays."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from puna._native import ThreadPool, quantize
from puna.convert.errors import ConversionError
from puna.convert.requantize import requantize
from puna.gguf import GgufFile
from puna.gguf.file_type import FILE_TYPES
from tests.convert.converting import convert
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native


@pytest.mark.parametrize("source", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("quantization", ["Q4_K_M", "Q8_0", "BF16"])
def test_weights_are_quantized_and_all_else_stays(source: str, quantization: str, tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "source.gguf", TINY["llama"], source)
    told = convert(requantize, {"model": path}, tmp_path / "out.gguf", quantization.lower())
    assert told[-1].completed == told[-1].total == (tmp_path / "out.gguf").stat().st_size
    assert told[-1].status == f"quantizing {source} model to {quantization}"
    assert [step.completed for step in told] == sorted(step.completed for step in told)
    with GgufFile(path) as before, GgufFile(tmp_path / "out.gguf") as after, closing(ThreadPool(1)) as pool:
        assert after.metadata["general.file_type"] == FILE_TYPES[quantization]
        for key in before.metadata.keys() - {"general.file_type", "general.quantization_version"}:
            assert after.metadata.info(key) == before.metadata.info(key)
            np.testing.assert_array_equal(after.metadata[key], before.metadata[key])
        assert list(after.tensors) == list(before.tensors)
        for name, tensor in after.tensors.items():
            assert tensor.shape == before.tensors[name].shape
            rows = before.data(name).reshape(-1, before.tensors[name].num_bytes // max(1, tensor.shape[-1]))
            expected = quantize(pool, rows, before.tensors[name].type, tensor.type)
            np.testing.assert_array_equal(after.data(name), expected.ravel())
        assert {tensor.type for tensor in after.tensors.values()} & {quantization, "Q5_0", "Q4_K"}


def test_refusals(tmp_path: Path) -> None:
    quantized = write_tiny(tmp_path / "quantized.gguf", TINY["llama"], "Q8_0")
    with pytest.raises(ConversionError, match="only supported for F16, BF16 and F32 models"):
        convert(requantize, {"model": quantized}, tmp_path / "out.gguf", "Q4_K_M")
    path = write_tiny(tmp_path / "source.gguf", TINY["llama"], "F16")
    with pytest.raises(ConversionError, match="unsupported quantization type Q7"):
        convert(requantize, {"model": path}, tmp_path / "out.gguf", "Q7")
    with GgufFile(path) as file:
        offset = file.tensors["token_embd.weight"].offset
    with path.open("r+b") as source:
        source.seek(offset)
        source.write(np.array([np.nan], np.float16).tobytes())
    with pytest.raises(ConversionError, match="infinite or not a number"):
        convert(requantize, {"model": path}, tmp_path / "out.gguf", "Q8_0")
