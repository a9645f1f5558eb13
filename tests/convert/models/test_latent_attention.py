"""The matrices that make keys and values of a latent vector are taken apart, head by head."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from puna.convert.errors import ConversionError
from puna.convert.safetensors import convert_safetensors
from tests.convert.converting import convert, files_in
from tests.convert.directories import DIRECTORIES, safetensors, write_tokenizer

pytestmark = pytest.mark.native

HEADS, KEYS, VALUES, RANK, ROTATED = 3, 16, 12, 32, 8
CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_attention_heads": HEADS,
    "num_hidden_layers": 1,
    "max_position_embeddings": 256,
    "kv_lora_rank": RANK,
    "qk_nope_head_dim": KEYS,
    "qk_rope_head_dim": ROTATED,
    "v_head_dim": VALUES,
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "mscale_all_dim": 1.0},
}


def write(directory: Path, num_rows: int) -> np.ndarray:
    """With the matrix that makes keys and values."""
    rng = np.random.default_rng(0)
    both = rng.standard_normal((num_rows, RANK), dtype=np.float32)
    tensors = {
        "model.embed_tokens.weight": rng.standard_normal((272, 48), dtype=np.float32),
        "model.layers.0.self_attn.kv_b_proj.weight": both,
        "model.layers.1.eh_proj.weight": both,  # of a layer that predicts further tokens
    }
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    content = safetensors({name: ("F32", values) for name, values in tensors.items()})
    (directory / "model.safetensors").write_bytes(content)
    write_tokenizer(directory, DIRECTORIES["qwen2"])
    return both


def test_keys_are_transposed_and_values_are_not(tmp_path: Path):
    both = write(tmp_path / "in", HEADS * (KEYS + VALUES)).reshape(HEADS, KEYS + VALUES, RANK)
    convert(convert_safetensors, files_in(tmp_path / "in"), tmp_path / "out.gguf")
    reader = gguf.GGUFReader(tmp_path / "out.gguf")
    read = {tensor.name: tensor.data for tensor in reader.tensors}
    np.testing.assert_array_equal(read["blk.0.attn_k_b.weight"], both[:, :KEYS].swapaxes(1, 2))
    np.testing.assert_array_equal(read["blk.0.attn_v_b.weight"], both[:, KEYS:])
    expected = {
        "attention.head_count_kv": 1,
        "attention.key_length": RANK + ROTATED,
        "attention.value_length": RANK,
        "attention.key_length_mla": KEYS + ROTATED,
        "attention.value_length_mla": VALUES,
        "rope.dimension_count": ROTATED,
        "expert_gating_func": 2,
        "rope.scaling.yarn_log_multiplier": pytest.approx(0.1),
    }
    fields = {key: reader.get_field(f"deepseek2.{key}") for key in expected}
    assert {key: field and field.contents() for key, field in fields.items()} == expected


def test_a_matrix_of_other_heads_is_refused(tmp_path: Path):
    write(tmp_path / "in", HEADS * (KEYS + VALUES) + 1)
    with pytest.raises(ConversionError, match="kv_b_proj"):
        convert(convert_safetensors, files_in(tmp_path / "in"), tmp_path / "out.gguf")
