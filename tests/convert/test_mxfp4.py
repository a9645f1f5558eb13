"""Weights that are MXFP4 already keep their values, in GGUF's order."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from puna.convert.errors import ConversionError
from puna.convert.safetensors import convert_safetensors
from tests.convert.converting import convert, files_in
from tests.convert.directories import DIRECTORIES, safetensors, to_bf16, write_tokenizer

pytestmark = pytest.mark.native

WIDTH, FFN, EXPERTS, VOCAB = 64, 96, 3, 272
CODES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
"""Of the format E2M1."""
LAYER = "model.layers.0."


def write(directory: Path, rng: np.random.Generator) -> dict[str, tuple[str, np.ndarray]]:
    def floats(*shape: int) -> tuple[str, np.ndarray]:
        return "BF16", to_bf16(rng.standard_normal(shape, dtype=np.float32))

    def codes(*shape: int) -> tuple[str, np.ndarray]:
        return "U8", rng.integers(0, 256, shape, dtype=np.uint8)

    def scales(*shape: int) -> tuple[str, np.ndarray]:
        return "U8", rng.integers(120, 134, shape, dtype=np.uint8)

    tensors = {
        "model.embed_tokens.weight": floats(VOCAB, WIDTH),
        f"{LAYER}mlp.experts.gate_up_proj_blocks": codes(EXPERTS, 2 * FFN, WIDTH // 32, 16),
        f"{LAYER}mlp.experts.gate_up_proj_scales": scales(EXPERTS, 2 * FFN, WIDTH // 32),
        f"{LAYER}mlp.experts.gate_up_proj_bias": floats(EXPERTS, 2 * FFN),
        f"{LAYER}mlp.experts.down_proj_blocks": codes(EXPERTS, WIDTH, FFN // 32, 16),
        f"{LAYER}mlp.experts.down_proj_scales": scales(EXPERTS, WIDTH, FFN // 32),
        f"{LAYER}mlp.experts.down_proj_bias": floats(EXPERTS, WIDTH),
        f"{LAYER}self_attn.sinks": floats(4),
    }
    directory.mkdir()
    sizes = {"hidden_size": WIDTH, "intermediate_size": FFN, "num_attention_heads": 4, "num_hidden_layers": 1}
    experts = {"num_local_experts": EXPERTS, "num_experts_per_tok": 2, "sliding_window": 128}
    config = {"architectures": ["GptOssForCausalLM"], **sizes, **experts}
    (directory / "config.json").write_text(json.dumps(config))
    write_tokenizer(directory, DIRECTORIES["qwen2"])
    save(directory, tensors)
    return tensors


def save(directory: Path, tensors: dict[str, tuple[str, np.ndarray]]) -> None:
    (directory / "model.safetensors").write_bytes(safetensors(tensors))


def values(tensors: dict[str, tuple[str, np.ndarray]], name: str) -> np.ndarray:
    blocks, scales = (tensors[f"{LAYER}mlp.experts.{name}_{part}"][1] for part in ("blocks", "scales"))
    pairs = np.stack([CODES[blocks & 15], CODES[blocks >> 4]], axis=-1)
    scaled = pairs.reshape(*scales.shape, 32) * np.exp2(scales.astype(np.float32) - 127)[..., None]
    return scaled.reshape(*scales.shape[:2], -1)


def test_experts_of_gpt_oss(tmp_path: Path):
    tensors = write(tmp_path / "in", np.random.default_rng(0))
    convert(convert_safetensors, files_in(tmp_path / "in"), tmp_path / "out.gguf")
    read = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    both = values(tensors, "gate_up_proj")
    expected = {"gate": both[:, ::2], "up": both[:, 1::2], "down": values(tensors, "down_proj")}
    for name, content in expected.items():
        found = read[f"blk.0.ffn_{name}_exps.weight"]
        assert found.tensor_type.name == "MXFP4"
        np.testing.assert_array_equal(gguf.dequantize(found.data, found.tensor_type), content)
    biases = (tensors[f"{LAYER}mlp.experts.gate_up_proj_bias"][1].astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(read["blk.0.ffn_gate_exps.bias"].data, biases[:, ::2])
    np.testing.assert_array_equal(read["blk.0.ffn_up_exps.bias"].data, biases[:, 1::2])


@pytest.mark.parametrize("change", ["no scales", "other scales", "other blocks"])
def test_blocks_without_their_scales(change: str, tmp_path: Path):
    tensors = write(tmp_path / "in", np.random.default_rng(0))
    scales, blocks = (f"{LAYER}mlp.experts.down_proj_{part}" for part in ("scales", "blocks"))
    if change == "no scales":
        del tensors[scales]
    elif change == "other scales":
        tensors[scales] = ("U8", tensors[scales][1][:, 1:])
    else:
        tensors[blocks] = ("U8", tensors[blocks][1][..., :8])
    save(tmp_path / "in", tensors)
    with pytest.raises(ConversionError, match="down_proj"):
        convert(convert_safetensors, files_in(tmp_path / "in"), tmp_path / "out.gguf")
