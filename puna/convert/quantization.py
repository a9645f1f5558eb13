"""Which type each tensor gets in a file of a quantization such as Q4_K_M: llama-quantize's choice.

The facts are those of src/llama-quant.cpp of llama.cpp: weights that are small or that much depends on stay
as they are or get more bits, in some layers more than in others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from puna.convert.errors import ConversionError
from puna.gguf.writer import GgufValue, NewTensor, is_block_multiple

QUANTIZATIONS = {
    "F32": "F32", "F16": "F16", "BF16": "BF16", "Q8_0": "Q8_0", "Q4_0": "Q4_0", "Q4_1": "Q4_1",
    "Q5_0": "Q5_0", "Q5_1": "Q5_1", "Q4_K_S": "Q4_K", "Q4_K_M": "Q4_K", "Q5_K_S": "Q5_K", "Q5_K_M": "Q5_K",
    "Q6_K": "Q6_K",
}  # fmt: skip
"""The type of most weights by the quantization's name."""

FLOATS = ("F32", "F16", "BF16")
"""What can be quantized."""

_ALIASES = {"Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
_SMALLER_BLOCKS = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
"""For rows that are no multiple of 256 values."""

_KEPT = (
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel",
    "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight",
    "indexer.q_proj.weight", "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight",
    "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight",
    "time_mix_a0.weight", "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight",
    "time_mix_g2.weight", "time_mix_decay_w1.weight", "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight", "attn_rel_b.weight", ".position_embd", "sam.pos_embd", "sam.neck.",
    "sam.net_", ".rel_pos", ".patch_embd", ".patch_merger", "a.rvq.codebook", "mm.a.code_embd",
)  # fmt: skip
"""Parts of the names of matrices that stay as they are..."""
_KEPT_NAMES = ("position_embd.weight", "token_types.weight")
"""...and whole names."""

Role = Literal["output", "embedding", "value", "key", "attention_output", "ffn_down", "other"]
_ROLES: tuple[tuple[str, Role], ...] = (
    ("attn_qkv.weight", "value"),
    ("attn_kv_b.weight", "value"),
    ("attn_v.weight", "value"),
    ("attn_k.weight", "key"),
    ("attn_output.weight", "attention_output"),
    ("ffn_down", "ffn_down"),
)
_LARGE_MODELS = {"deci": 80, "jais2": 68, "llama": 80, "olmo": 80, "qwen2": 80}
"""By architecture the layers of models of about 70B parameters, whose value matrices are small."""
_ATTENTION_OF_8_EXPERTS = ("Q4_K_S", "Q4_K_M")


class ModelFacts(msgspec.Struct, frozen=True):
    """What the choice depends on beside names and shapes."""

    architecture: str
    num_layers: int
    num_experts: int
    num_heads: int
    num_kv_heads: int

    @classmethod
    def of(cls, metadata: Mapping[str, GgufValue]) -> ModelFacts:
        """Of a GGUF file. What is missing or no number counts as 0."""
        architecture = metadata["general.architecture"].value if "general.architecture" in metadata else ""

        def number(key: str) -> int:
            found = metadata.get(f"{architecture}.{key}")
            values = [] if found is None else found.value if found.type == "array" else [found.value]
            return int(values[0]) if len(values) and not isinstance(values[0], str) else 0

        heads = number("attention.head_count")
        return cls(
            str(architecture),
            number("block_count"),
            number("expert_count"),
            heads,
            number("attention.head_count_kv") or heads,
        )

    @property
    def is_large(self) -> bool:
        has_all_kv_heads = self.architecture == "llama" and self.num_heads == self.num_kv_heads
        return self.num_layers == _LARGE_MODELS.get(self.architecture) and not has_all_kv_heads


class _Place(NamedTuple):
    """Which of how many tensors of its role it is."""

    layer: int
    num_layers: int

    @property
    def gets_more_bits(self) -> bool:
        """The first and the last eighth, and every third in between."""
        eighth = self.num_layers // 8
        return self.layer < eighth or self.layer >= 7 * self.num_layers // 8 or (self.layer - eighth) % 3 == 2


def quantization_named(name: str) -> str:
    """As QUANTIZATIONS has it, whatever the case. Raises ConversionError."""
    upper = name.upper()
    if (known := _ALIASES.get(upper, upper)) not in QUANTIZATIONS:
        types = ", ".join(QUANTIZATIONS)
        raise ConversionError(f"unsupported quantization type {name[:100]} - supported types are {types}")
    return known


def choose_types(facts: ModelFacts, tensors: Sequence[NewTensor], quantization: str) -> dict[str, str]:
    """Of each tensor, by name. tensors: as they are now, of types FLOATS. quantization: of QUANTIZATIONS."""
    types = {tensor.name: tensor.type for tensor in tensors}
    chosen = [tensor for tensor in tensors if _can_be_quantized(tensor)]
    default = QUANTIZATIONS[quantization]
    if default in FLOATS:
        return types | {tensor.name: default for tensor in chosen}
    is_tied = "output.weight" not in types
    num_values = sum(_role(name) == "value" for name in types)
    for tensor, role, number in _numbered(chosen):
        if role == "output" or (role == "embedding" and is_tied):
            wanted = _output_type(facts, tensor, default)
        elif role == "value":
            wanted = _value_type(facts, _Place(number, num_values), quantization)
        elif role == "ffn_down":
            layer = _layer(tensor.name) if facts.num_experts > 1 else number
            wanted = _ffn_down_type(facts, _Place(layer, facts.num_layers), quantization)
        elif role == "key" and facts.num_experts == 8:
            wanted = "Q8_0"
        elif role == "attention_output" and facts.num_experts == 8:
            wanted = "Q5_K" if quantization in _ATTENTION_OF_8_EXPERTS else default
        else:
            wanted = default
        types[tensor.name] = _fitting(wanted, tensor.shape[0])
    return types


def _can_be_quantized(tensor: NewTensor) -> bool:
    return (
        any(extent > 1 for extent in tensor.shape[1:])
        and tensor.type in FLOATS
        and tensor.name.endswith("weight")
        and not any(part in tensor.name for part in _KEPT)
        and tensor.name not in _KEPT_NAMES
    )


def _role(name: str) -> Role:
    if name == "output.weight":
        return "output"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "embedding"
    return next((role for part, role in _ROLES if part in name), "other")


def _layer(name: str) -> int:
    found = re.match(r"blk\.(\d{1,9})\.", name)
    return int(found[1]) if found else -1


def _numbered(tensors: Sequence[NewTensor]) -> Iterator[tuple[NewTensor, Role, int]]:
    """By layer and name, with how many of the same role came before."""
    seen: dict[Role, int] = {}
    for tensor in sorted(tensors, key=lambda tensor: (_layer(tensor.name), tensor.name)):
        role = _role(tensor.name)
        number = seen.get(role, 0)
        seen[role] = number + 1
        yield tensor, role, number


def _output_type(facts: ModelFacts, tensor: NewTensor, default: str) -> str:
    has_blocks = is_block_multiple(default, tensor.shape[0])
    return "Q6_K" if facts.architecture != "falcon" and has_blocks and default != "Q8_0" else "Q8_0"


def _value_type(facts: ModelFacts, place: _Place, quantization: str) -> str:
    wanted = QUANTIZATIONS[quantization]
    if facts.num_experts == 8:
        return "Q8_0"
    if quantization in ("Q4_K_M", "Q5_K_M") and place.gets_more_bits:
        wanted = "Q6_K"
    elif quantization == "Q4_K_S" and place.layer < 4:
        wanted = "Q5_K"
    return "Q5_K" if facts.is_large and wanted == "Q4_K" else wanted


def _ffn_down_type(facts: ModelFacts, place: _Place, quantization: str) -> str:
    is_falcon = facts.architecture == "falcon"
    if quantization == "Q4_K_M" and is_falcon:
        if place.layer < place.num_layers // 16:
            return "Q6_K"
        return "Q5_K" if place.gets_more_bits else "Q4_K"
    if quantization in ("Q4_K_M", "Q5_K_M") and place.gets_more_bits:
        return "Q6_K"
    if quantization == "Q4_K_S" and not is_falcon and place.layer < place.num_layers // 8:
        return "Q5_K"
    return QUANTIZATIONS[quantization]


def _fitting(wanted: str, num_columns: int) -> str:
    for type_name in (wanted, _SMALLER_BLOCKS.get(wanted, wanted)):
        if is_block_multiple(type_name, num_columns):
            return type_name
    return "F16"
