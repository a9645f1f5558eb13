"""Names of tensors are those of the gguf package, for every family."""

from __future__ import annotations

import gguf
import pytest

from puna.convert.models.encoders import ENCODERS
from puna.convert.models.families import FAMILIES
from puna.convert.models.names import place_of

pytestmark = pytest.mark.unit

NUMBERS = {text: number for number, text in gguf.MODEL_ARCH_NAMES.items()}
REFERENCES_CLASSIFIERS = {"classifier": "classifier.out_proj", "pooler.dense": "classifier.dense"}
"""Names that the converter changes before it asks for GGUF's."""
SPLIT = ("gate_up_proj", "_blocks")
"""Two tensors of GGUF, or of safetensors."""
# Of names that stand for several tensors, test_recorded.py has what becomes of them.


@pytest.mark.parametrize("model_class", FAMILIES)
def test_names_of_a_layer(model_class: str):
    family = FAMILIES[model_class]
    names = gguf.get_tensor_name_map(NUMBERS[family.architecture], 5)
    for inner in family.layer_names:
        if inner.endswith(SPLIT):
            continue
        source = f"{family.layers}4.{inner}"
        older = source.replace("model.", "").replace("block_sparse_moe.experts", "feed_forward.experts")
        expected = names.get_name(source) or names.get_name(older)
        if family.layer_names[inner].startswith("nextn."):  # which the package knows of some families only
            expected = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GLM4_MOE, 5).get_name(source)
        if expected is None and family.layer_names[inner] in family.parts:
            continue
        place = place_of(f"{source}.weight", family)
        assert place is not None
        ending = "" if inner.endswith(("A_log", "mamba.D")) else ".weight"
        assert place.name == f"{expected}{ending}", source


@pytest.mark.parametrize("model_class", ENCODERS)
def test_names_outside_of_layers(model_class: str):
    family = FAMILIES[model_class]
    names = gguf.get_tensor_name_map(NUMBERS[family.architecture], 5)
    for source, name in family.global_names.items():
        expected = REFERENCES_CLASSIFIERS.get(source, source)
        assert names.get_name(f"{expected}.weight", try_suffixes=(".weight",)) == f"{name}.weight"
