"""Projectors are taken out of files as Ollama published them, under the names that llama.cpp knows."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from puna.gguf import GgufError, GgufFile
from puna.gguf.file import open_file
from puna.gguf.projector_file import must_be_written, write_projector
from tests.tiny.towers import TOWERS, write_seeing

pytestmark = pytest.mark.native

VISION = {"block_count": 1, "attention.head_count": 2, "patch_size": 14}


def published(
    path: Path, architecture: str, tensors: dict[str, np.ndarray[Any, Any]], **values: int | list[int]
) -> Path:
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_uint32(f"{architecture}.embedding_length", 32)
    for key, value in {**{f"vision.{key}": value for key, value in VISION.items()}, **values}.items():
        if isinstance(value, list):
            writer.add_array(f"{architecture}.{key}", value)
        else:
            writer.add_uint32(f"{architecture}.{key}", value)
    for name, content in tensors.items():
        writer.add_tensor(name, content)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def taken_out(path: Path) -> GgufFile:
    output = path.with_suffix(".mmproj")
    with (
        open_file(path) as descriptor,
        output.open("w+b") as file,
        GgufFile.from_descriptor(descriptor, path.name, as_published=True) as source,
    ):
        write_projector(source, file)
    return GgufFile(output)


def numbers(*shape: int, dtype: type = np.float16) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def _number(value: Any) -> Any:
    """Texts as what can be compared with a tolerance."""
    return list(value.encode()) if isinstance(value, str) else value


@pytest.mark.parametrize("name", TOWERS)
def test_it_is_as_the_converter_makes_it(name: str, tmp_path: Path):
    (_, projector), published = write_seeing(tmp_path, name)
    with GgufFile(projector) as expected, taken_out(published) as found:
        assert found.tensors.keys() == expected.tensors.keys()
        for key in expected.tensors:
            assert found.tensors[key].shape == expected.tensors[key].shape
            assert np.array_equal(found.dequantize(key), expected.dequantize(key)), key
        for key in expected.metadata:
            np.testing.assert_allclose(
                *(_number(each.metadata[key]) for each in (found, expected)), err_msg=key
            )
        assert not must_be_written(found.metadata)


def test_queries_keys_and_values_of_one_type_keep_it_and_of_several_are_floats(tmp_path: Path):
    rows = numbers(32, 32)
    for kinds, kind in (((np.float16,) * 3, "F16"), ((np.float16, np.float16, np.float32), "F32")):
        tensors = {
            f"v.blk.0.attn_{letter}.weight": (rows + i).astype(kinds[i]) for i, letter in enumerate("qkv")
        }
        file = taken_out(published(tmp_path / "m", "qwen3vl", tensors))
        assert file.tensors["v.blk.0.attn_qkv.weight"].type == kind
        expected = np.concatenate([rows, rows + 1, rows + 2])
        assert np.array_equal(file.dequantize("v.blk.0.attn_qkv.weight"), expected)


def test_the_first_projectors_learn_what_they_are(tmp_path: Path):
    path = published(tmp_path / "p", "clip", {"mm.0.weight": numbers(2, 32)}, **{"vision.image_size": 336})
    with GgufFile(path) as before:
        assert must_be_written(before.metadata)
    file = taken_out(path)
    assert (file.metadata["clip.projector_type"], file.metadata["clip.vision.image_size"]) == ("mlp", 336)
    assert np.array_equal(file.dequantize("mm.0.weight"), numbers(2, 32))


@pytest.mark.parametrize(
    ("architecture", "tensors", "text"),
    [
        ("llama", {"v.x": numbers(32)}, "no projector"),
        ("gemma3", {"token_embd.weight": numbers(32)}, "no projector"),
        ("qwen3vl", {"v.blk.0.attn_q.weight": numbers(6, 32)}, "attn_k.weight is missing"),
        (
            "qwen35",
            {"v.patch_embed.weight": numbers(6, 3, 14, 14)},
            "patch_embed.weight is not of two frames",
        ),
        ("qwen3vl", {"v.deepstack_merger.0.norm.weight": numbers(32)}, r"no layer is told for v\.deepstack"),
        ("mistral3", {"v.blk.0.attn_q.weight": numbers(6, 32)}, "attn_q.weight does not have 2 heads"),
    ],
)
def test_what_has_none_is_told_so(
    architecture: str, tensors: dict[str, np.ndarray[Any, Any]], text: str, tmp_path: Path
):
    with pytest.raises(GgufError, match=text):
        taken_out(published(tmp_path / "m", architecture, tensors))


def test_nothing_becomes_many_times_as_large(tmp_path: Path):
    """Of what has to be floats for llama.cpp, Ollama publishes no blocks."""
    tensors = {
        "v.patch_embedding.weight": numbers(2, 3, 14, 14),
        "v.position_embedding.weight": np.zeros((256, 32), np.float32),
    }
    path = published(tmp_path / "gemma3.gguf", "gemma3", tensors)
    content = path.read_bytes()
    f32, q4_0 = (struct.pack("<QQI", 32, 256, kind) for kind in (0, 2))
    assert content.count(f32) == 1
    path.write_bytes(content.replace(f32, q4_0))
    with pytest.raises(GgufError, match="its projector would grow more than 4-fold"):
        taken_out(path)
