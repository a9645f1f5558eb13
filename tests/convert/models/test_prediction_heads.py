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
from puna.convert.models.recurrent import RECURRENT
from puna.convert.safetensors import convert_safetensors
from tests.convert.converting import convert, files_in
from tests.convert.directories import DIRECTORIES, safetensors, write_tokenizer
from tests.forward import load_file
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

GLM = "Glm4MoeForCausalLM"
FAMILIES = MIXTURES | RECURRENT
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
LINEAR = {
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "full_attention_interval": 3,
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
}
QWEN35 = LINEAR | {
    "head_dim": 32,
    "num_hidden_layers": 5,
    "layer_types": ["linear_attention" if layer != 2 else "full_attention" for layer in range(5)],
    "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [3, 3, 2]},
    "mtp_num_hidden_layers": 1,
}
QWEN3_NEXT = LINEAR | {
    "architectures": ["Qwen3NextForCausalLM"],
    "head_dim": 16,
    "num_hidden_layers": 3,
    "partial_rotary_factor": 1.0,
    "num_experts": 7,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 160,
}
APART = {
    "eh_proj": "fc",
    "enorm": "pre_fc_norm_embedding",
    "hnorm": "pre_fc_norm_hidden",
    "shared_head.norm": "norm",
}


def tensors_of(path: Path) -> dict[str, NDArray[Any]]:
    return {tensor.name: np.array(tensor.data) for tensor in gguf.GGUFReader(path).tensors}


def published(model_class: str, tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """By the names that the model's authors gave them."""
    family = FAMILIES[model_class]
    names = {new: old for old, new in family.layer_names.items()}
    others = {new: old for old, new in family.global_names.items()}
    found = {}
    for name, values in tensors.items():
        stem, ending = re.fullmatch(r"(.+?)(\.weight|\.bias|)", name).groups()
        if not (layer := re.fullmatch(r"blk\.(\d+)\.(.+)", stem)):
            found[others[stem] + ending] = values
            continue
        place = f"model.layers.{layer[1]}.{names[layer[2]]}"
        if layer[2].endswith("_exps"):
            for expert, part in enumerate(values):
                found[f"{place.replace('experts', f'experts.{expert}')}{ending}"] = part
        else:
            found[place + (ending.replace(".", "_") if place.endswith("_correction") else ending)] = values
    return found


def converted(directory: Path, config: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config))
    content = safetensors({name: ("F32", values) for name, values in tensors.items()})
    (directory / "model.safetensors").write_bytes(content)
    write_tokenizer(directory, DIRECTORIES["qwen2"])
    output = directory / "out.gguf"
    convert(convert_safetensors, files_in(directory), output)
    return output


def test_a_layer_that_predicts_further_tokens_comes_along(tmp_path: Path):
    expected = tensors_of(write_tiny(tmp_path / "tiny.gguf", TINY["glm4moe"]))
    output = converted(tmp_path / "in", CONFIG, published(GLM, expected))
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
    output = converted(tmp_path / "in", CONFIG, published(GLM, expected))
    assert not any(name.startswith("blk.2.") for name in tensors_of(output))
    assert gguf.GGUFReader(output).fields["glm4moe.block_count"].contents() == 2


@pytest.mark.parametrize(
    ("tiny", "config"),
    [
        ("qwen35", {"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": QWEN35}),
        ("qwen3next", QWEN3_NEXT),
    ],
)
def test_a_head_that_lies_apart_is_the_last_layer(tmp_path: Path, tiny: str, config: dict[str, Any]):
    made = tensors_of(write_tiny(tmp_path / "tiny.gguf", TINY[tiny]))
    last = TINY[tiny].layers - 1
    if tiny == "qwen3next":
        for layer in (0, 1):
            parts = [made.pop(f"blk.{layer}.attn_{name}.weight") for name in ("qkv", "gate")]
            made[f"blk.{layer}.ssm_in.weight"] = np.concatenate(parts)
    source = {}
    for name, values in published(config["architectures"][0], made).items():
        if name.startswith(layer_name := f"model.layers.{last}."):
            inner, _, ending = name.removeprefix(layer_name).rpartition(".")
            source[f"mtp.{APART.get(inner, f'layers.0.{inner}')}.{ending}"] = values
        else:
            source[name.replace("model.", "model.language_model.") if tiny == "qwen35" else name] = values
    output = converted(tmp_path / "in", config, source)

    found = tensors_of(output)
    assert sum(name.startswith("mtp.") for name in source) >= 14
    for name in (name for name in made if name.startswith(f"blk.{last}.")):
        is_norm = name.endswith("norm.weight")
        np.testing.assert_array_equal(found[name], made[name] + 1 if is_norm else made[name], name)
    assert gguf.GGUFReader(output).fields[f"{tiny}.nextn_predict_layers"].contents() == 1
    backend = CpuBackend(num_threads=1)
    assert load_file(backend, output).info.predicts
    backend.close()

    (tmp_path / "less").mkdir()
    del source["mtp.fc.weight"]
    output = converted(tmp_path / "less" / "in", config, source)
    assert gguf.GGUFReader(output).fields[f"{tiny}.block_count"].contents() == last
