"""Layers that predict further tokens come along, where the files have all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from puna.backends.cpu import CpuBackend
from puna.convert.models.mixtures import MIXTURES
from puna.convert.safetensors import convert_safetensors
from tests.convert.converting import convert, files_in
from tests.convert.directories import DIRECTORIES, safetensors, write_tokenizer
from tests.forward import load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

GLM = "Glm4MoeForCausalLM"
CONFIG = {
    "architectures": [GLM],
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 2,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 2048,
    "partial_rotary_factor": 0.5,
    "n_routed_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "tie_word_embeddings": True,
}


def tensors_of(path: Path) -> dict[str, NDArray[Any]]:
    return {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


def published(tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """By the names that the model's authors gave them."""
    family = MIXTURES[GLM]
    names = {new: old for old, new in family.layer_names.items()}
    others = {new: old for old, new in family.global_names.items()}
    found = {}
    for name, values in tensors.items():
        stem, _, ending = name.rpartition(".")
        if not (layer := re.fullmatch(r"blk\.(\d+)\.(.+)", stem)):
            found[f"{others[stem]}.{ending}"] = values
            continue
        place = f"model.layers.{layer[1]}.{names[layer[2]]}"
        if layer[2].endswith("_exps"):
            for expert, part in enumerate(values):
                found[f"{place.replace('experts', f'experts.{expert}')}.{ending}"] = part
        else:
            found[f"{place}_{ending}" if place.endswith("_correction") else f"{place}.{ending}"] = values
    return found


def converted(directory: Path, tensors: dict[str, NDArray[Any]]) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    content = safetensors({name: ("F32", values) for name, values in tensors.items()})
    (directory / "model.safetensors").write_bytes(content)
    write_tokenizer(directory, DIRECTORIES["qwen2"])
    output = directory / "out.gguf"
    convert(convert_safetensors, files_in(directory), output)
    return output


def test_a_layer_that_predicts_further_tokens_comes_along(tmp_path: Path):
    expected = tensors_of(write_tiny(tmp_path / "tiny.gguf", TINY["glm4moe"]))
    output = converted(tmp_path / "in", published(expected))
    found = tensors_of(output)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, name)
    fields = gguf.GGUFReader(output).fields
    assert fields["glm4moe.block_count"].contents() == 3
    assert fields["glm4moe.nextn_predict_layers"].contents() == 1
    backend = CpuBackend(num_threads=1)
    assert load_file(backend, output).info.predicts
    backend.close()


def test_a_layer_of_which_parts_are_missing_is_left_out(tmp_path: Path):
    expected = tensors_of(write_tiny(tmp_path / "tiny.gguf", TINY["glm4moe"]))
    del expected["blk.2.nextn.eh_proj.weight"]
    output = converted(tmp_path / "in", published(expected))
    assert not any(name.startswith("blk.2.") for name in tensors_of(output))
    assert gguf.GGUFReader(output).fields["glm4moe.block_count"].contents() == 2
