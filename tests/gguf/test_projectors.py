"""Projectors are taken out of files as Ollama published them, under the names that llama.cpp knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from puna.gguf import GgufError, GgufFile
from puna.gguf.file import open_file
from puna.gguf.projector_file import must_be_written, write_projector

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


def test_gemma3_keeps_its_values_under_other_names(tmp_path: Path):
    tensors = {
        "token_embd.weight": numbers(4, 32),
        "v.patch_embedding.weight": numbers(2, 3, 14, 14),
        "v.blk.0.attn_output.weight": numbers(2, 32),
        "v.blk.0.mlp.fc1.bias": numbers(32, dtype=np.float32),
        "mm.mm_input_projection.weight": numbers(2, 32),
    }
    file = taken_out(published(tmp_path / "m", "gemma3", tensors))
    names = [
        "v.patch_embd.weight",
        "v.blk.0.attn_out.weight",
        "v.blk.0.ffn_down.bias",
        "mm.input_projection.weight",
    ]
    assert [(name, file.tensors[name].type) for name in file.tensors] == list(
        zip(names, ["F32", "F16", "F32", "F16"], strict=True)
    )
    for name, content in zip(names, list(tensors.values())[1:], strict=True):
        assert np.array_equal(file.dequantize(name).reshape(content.shape), content)
    metadata = file.metadata
    assert (metadata["general.architecture"], metadata["clip.projector_type"]) == ("clip", "gemma3")
    assert metadata["clip.vision.attention.head_count"] == 2
    assert metadata["clip.vision.projection_dim"] == 32
    assert not must_be_written(metadata)


def test_mistral3_has_neighbours_rotate_and_a_break_of_zeros(tmp_path: Path):
    rows = numbers(8, 32)  # two heads of four, whose halves rotate
    tensors = {"v.blk.0.attn_q.weight": rows, "v.blk.0.attn_v.weight": rows, "mm.norm.weight": numbers(32)}
    file = taken_out(published(tmp_path / "m", "mistral3", tensors, spatial_merge_size=2))
    assert np.array_equal(file.dequantize("v.blk.0.attn_q.weight"), rows[[0, 2, 1, 3, 4, 6, 5, 7]])
    assert np.array_equal(file.dequantize("v.blk.0.attn_v.weight"), rows)
    assert not file.dequantize("v.token_embd.img_break").any()
    assert file.tensors["v.token_embd.img_break"].shape == (32,)
    assert file.metadata["clip.vision.spatial_merge_size"] == 2


def test_qwen25vl_says_which_layers_have_windows(tmp_path: Path):
    tensors = {"v.blk.0.ffn_up.weight": numbers(48, 32), "v.merger.mlp.2.bias": numbers(32)}
    keys = {"vision.fullatt_block_indexes": [7, 15]}
    file = taken_out(published(tmp_path / "m", "qwen25vl", tensors, **keys))
    assert list(file.tensors) == ["v.blk.0.ffn_up.weight", "mm.2.bias"]
    assert file.metadata["clip.vision.n_wa_pattern"] == 8
    assert file.metadata["clip.vision.feed_forward_length"] == 48


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
        ("mistral3", {"v.blk.0.attn_q.weight": numbers(6, 32)}, "attn_q.weight does not have 2 heads"),
    ],
)
def test_what_has_none_is_told_so(
    architecture: str, tensors: dict[str, np.ndarray[Any, Any]], text: str, tmp_path: Path
):
    with pytest.raises(GgufError, match=text):
        taken_out(published(tmp_path / "m", architecture, tensors))
