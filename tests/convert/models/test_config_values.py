"""Values of config.json that no model has are refused by their names; what others mean."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from puna.convert.errors import ConversionError
from puna.convert.safetensors import convert_safetensors
from puna.gguf import GgufFile
from tests.convert.converting import convert, files_in
from tests.convert.models.recorded import RECORDED
from tests.convert.models.shapes import WIDTH, write

pytestmark = pytest.mark.native


def test_falcon_has_one_kv_head_whatever_is_said(tmp_path: Path):
    model = RECORDED["falcon"]
    (layer,) = model.layers
    qkv = {"self_attention.query_key_value.weight": (96, WIDTH)}
    config = model.config | {"multi_query": True, "num_kv_heads": 4}
    directory = write(tmp_path / "in", replace(model, config=config, layers=(layer | qkv,)))
    convert(convert_safetensors, files_in(directory), tmp_path / "out.gguf")
    with GgufFile(tmp_path / "out.gguf") as file:
        assert file.metadata["falcon.attention.head_count_kv"] == 1


@pytest.mark.parametrize(
    ("model", "key", "value", "message"),
    [
        ("lfm2moe", "intermediate_size", None, "block_ff_dim is missing"),
        ("hunyuan-moe", "intermediate_size", None, "intermediate_size is missing"),
        ("granite", "mamba_expand", 10**9, "ssm.inner_size would be 64000000000"),
        ("hunyuan-dense", "rope_scaling", {"type": "dynamic", "alpha": -3.5}, "alpha is -3.5"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(tmp_path: Path, model: str, key: str, value: Any, message: str):
    directory = write(tmp_path / "in", RECORDED[model])
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(ConversionError, match=message):
        convert(convert_safetensors, files_in(directory), tmp_path / "out.gguf")
