"""Of linear attention, queries, keys, values and gates are put together across heads."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from puna.convert.safetensors import convert_safetensors
from tests.convert.converting import convert, files_in
from tests.convert.directories import DIRECTORIES, safetensors, write_tokenizer

pytestmark = pytest.mark.native

HEADS, VALUE_HEADS, DIM, WIDTH = 2, 4, 8, 48
CONFIG = {
    "architectures": ["Qwen3NextForCausalLM"],
    "hidden_size": WIDTH,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_attention_heads": 6,
    "num_hidden_layers": 1,
    "linear_num_key_heads": HEADS,
    "linear_num_value_heads": VALUE_HEADS,
    "linear_key_head_dim": DIM,
    "linear_value_head_dim": DIM,
    "linear_conv_kernel_dim": 4,
}


def test_tensors_of_qwen3_next(tmp_path: Path):
    rng = np.random.default_rng(0)
    per_head = VALUE_HEADS // HEADS * DIM
    layer = {
        "in_proj_qkvz.weight": (HEADS * 2 * (DIM + per_head), WIDTH),
        "conv1d.weight": (24, 1, 4),
        "A_log": (VALUE_HEADS,),
        "dt_bias": (VALUE_HEADS,),
        "norm.weight": (DIM,),
    }
    named = {f"model.layers.0.linear_attn.{name}": shape for name, shape in layer.items()}
    named |= {"model.embed_tokens.weight": (272, WIDTH), "model.layers.0.input_layernorm.weight": (WIDTH,)}
    named["mtp.fc.weight"] = (WIDTH, WIDTH)
    weights = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in named.items()}
    directory = tmp_path / "in"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    content = safetensors({name: ("F32", values) for name, values in weights.items()})
    (directory / "model.safetensors").write_bytes(content)
    write_tokenizer(directory, DIRECTORIES["qwen2"])
    convert(convert_safetensors, files_in(directory), tmp_path / "out.gguf")

    source = {name.removeprefix("model.layers.0.linear_attn."): values for name, values in weights.items()}
    heads = source["in_proj_qkvz.weight"].reshape(HEADS, -1, WIDTH)
    q, k, v, z = np.split(heads, np.cumsum([DIM, DIM, per_head]), axis=1)
    expected = {
        "attn_qkv.weight": np.concatenate([part.reshape(-1, WIDTH) for part in (q, k, v)]),
        "attn_gate.weight": z.reshape(-1, WIDTH),
        "ssm_conv1d.weight": source["conv1d.weight"][:, 0],
        "ssm_a": -np.exp(source["A_log"].astype(np.float64)).astype(np.float32),
        "ssm_dt.bias": source["dt_bias"],
        "ssm_norm.weight": source["norm.weight"],
        "attn_norm.weight": weights["model.layers.0.input_layernorm.weight"] + 1,
    }
    read = {tensor.name: tensor.data for tensor in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    assert read.keys() == {"token_embd.weight", *(f"blk.0.{name}" for name in expected)}
    for name, values in expected.items():
        np.testing.assert_array_equal(read[f"blk.0.{name}"], values, err_msg=name)
