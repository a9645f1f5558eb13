"""Values of config.json that no model has are refused by their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from puna.convert.errors import ConversionError
from puna.convert.safetensors import convert_safetensors
from tests.convert.converting import convert, files_in
from tests.convert.models.recorded import RECORDED
from tests.convert.models.shapes import write

pytestmark = pytest.mark.native


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
