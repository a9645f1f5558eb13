"""LoRA adapters of PEFT become what llama.cpp's converter makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from puna.convert.adapter import convert_adapter
from puna.convert.errors import ConversionError
from puna.convert.job import BASE_MODEL
from tests.convert.converting import convert, files_in
from tests.convert.directories import safetensors
from tests.tiny import TINY, write_tiny

pytestmark = pytest.mark.native

RANK = 4
PAIRS = {"self_attn.q_proj": (96, 96), "self_attn.v_proj": (32, 96), "mlp.down_proj": (96, 160)}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.v_proj": "attn_v", "mlp.down_proj": "ffn_down"}


def write_adapter(
    directory: Path, pairs: dict[str, tuple[int, int]] = PAIRS, **settings: Any
) -> dict[str, Any]:
    """The matrices of layer 1, by their names in the file."""
    rng = np.random.default_rng(0)
    weights = {}
    for name, (rows, columns) in pairs.items():
        stem = f"base_model.model.model.layers.1.{name}"
        weights[f"{stem}.lora_A.weight"] = rng.standard_normal((RANK, columns), np.float32)
        weights[f"{stem}.lora_B.weight"] = rng.standard_normal((rows, RANK), np.float32)
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 16, **settings}
    directory.mkdir(exist_ok=True)
    (directory / "adapter_config.json").write_text(json.dumps(config))
    content = safetensors({name: ("F32", values) for name, values in weights.items()})
    (directory / "adapter_model.safetensors").write_bytes(content)
    return weights


def converted(directory: Path, architecture: str = "llama") -> Path:
    base = write_tiny(directory.parent / "base.gguf", TINY[architecture])
    output = directory.parent / "out.gguf"
    convert(convert_adapter, {**files_in(directory), BASE_MODEL: base}, output)
    return output


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_adapters_are_the_references(architecture: str, tmp_path: Path):
    weights = write_adapter(tmp_path / "adapter")
    reader = gguf.GGUFReader(converted(tmp_path / "adapter", architecture))
    read = {tensor.name: tensor.data for tensor in reader.tensors}
    assert len(read) == 2 * len(PAIRS)
    for name, ours in NAMES.items():
        a, b = (weights[f"base_model.model.model.layers.1.{name}.lora_{part}.weight"] for part in "AB")
        if (architecture, ours) == ("llama", "attn_q"):  # as the weight that they change
            b = b.reshape(6, 2, 8, RANK).swapaxes(1, 2).reshape(b.shape)
        np.testing.assert_array_equal(read[f"blk.1.{ours}.weight.lora_a"], a)
        np.testing.assert_array_equal(read[f"blk.1.{ours}.weight.lora_b"], b)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    assert fields["general.type"] == "adapter"
    assert fields["general.architecture"] == architecture
    assert (fields["adapter.type"], fields["adapter.lora.alpha"]) == ("lora", 16.0)


def test_rank_stabilised_adapters_keep_their_scale(tmp_path: Path):
    write_adapter(tmp_path / "adapter", use_rslora=True)
    fields = gguf.GGUFReader(converted(tmp_path / "adapter")).fields
    assert fields["adapter.lora.alpha"].contents() / RANK == 16 / RANK**0.5


@pytest.mark.parametrize(
    ("pairs", "settings", "error"),
    [
        (PAIRS, {"use_dora": True}, "use_dora"),
        ({"self_attn.q_proj": (96, 95)}, {}, "do not fit"),
        ({"self_attn.w_proj": (96, 96)}, {}, "w_proj"),
    ],
)
def test_what_is_no_plain_adapter_of_the_model_is_refused(
    pairs: dict[str, tuple[int, int]], settings: dict[str, Any], error: str, tmp_path: Path
):
    write_adapter(tmp_path / "adapter", pairs, **settings)
    with pytest.raises(ConversionError, match=error):
        converted(tmp_path / "adapter")


def test_weights_that_are_missing(tmp_path: Path):
    write_adapter(tmp_path / "adapter")
    (tmp_path / "adapter" / "adapter_model.safetensors").rename(tmp_path / "adapter" / "other.safetensors")
    with pytest.raises(ConversionError, match=r"adapter_model\.safetensors is missing"):
        converted(tmp_path / "adapter")


@pytest.mark.parametrize("alpha", [1e300, 10**400, "16"])
def test_scales_that_no_file_can_have(tmp_path: Path, alpha: Any):
    write_adapter(tmp_path / "adapter", lora_alpha=alpha)
    with pytest.raises(ConversionError, match=r"lora_alpha is .*, not a number"):
        converted(tmp_path / "adapter")
