"""Tensors of safetensors that are several of GGUF's."""

from __future__ import annotations

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.hyperparameters import MAX_HEADS, num_heads
from puna.convert.models.names import Place
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.sources.header import SourceTensor
from puna.convert.sources.mxfp4 import TYPE, find_mxfp4
from puna.convert.sources.values import Rows, all_rows

GATE_AND_UP, _PARTS = "ffn_gate_up_exps", ("ffn_gate_exps", "ffn_up_exps")


def gate_and_up(place: Place, tensor: SourceTensor) -> list[PlannedTensor]:
    """Of each expert the first half of the rows is the gate."""
    if len(tensor.shape) != 3 or tensor.shape[1] % 2:
        raise ConversionError(f"tensor {tensor.name[:100]!r} cannot have the shape {tensor.shape}")
    count, both, width = tensor.shape
    half = both // 2
    return [
        PlannedTensor(
            name=place.name.replace(GATE_AND_UP, part),
            shape=(count, half, width),
            dtype=tensor.dtype,
            rows=tuple(Rows(tensor, expert * both + begin, half) for expert in range(count)),
        )
        for part, begin in zip(_PARTS, (0, half), strict=True)
    ]


def interleaved_gate_and_up(place: Place, tensor: SourceTensor) -> list[PlannedTensor]:
    """Of biases: of each expert every second value is the gate's."""
    if len(tensor.shape) != 2 or tensor.shape[1] % 2:
        raise ConversionError(f"tensor {tensor.name[:100]!r}: experts can be converted in MXFP4 only")
    return [
        PlannedTensor(
            name=place.name.replace(GATE_AND_UP, part),
            shape=(tensor.shape[0], tensor.shape[1] // 2),
            dtype=tensor.dtype,
            rows=(all_rows(tensor),),
            every=(first, 2),
        )
        for first, part in enumerate(_PARTS)
    ]


def mxfp4(place: Place, blocks: SourceTensor, scales: SourceTensor | None) -> list[PlannedTensor]:
    """Of gates and what they gate, row by row in turn."""
    is_both = GATE_AND_UP in place.name
    names = [place.name.replace(GATE_AND_UP, part) for part in _PARTS] if is_both else [place.name]
    parts = find_mxfp4(blocks, scales, len(names))
    return [
        PlannedTensor(name=name, shape=part.shape, dtype=TYPE, mxfp4=part)
        for name, part in zip(names, parts, strict=True)
    ]


def keys_and_values(place: Place, rows: Rows, config: Config) -> list[PlannedTensor]:
    """What makes keys and values of a latent vector, head by head; keys' matrices are transposed."""
    tensor, heads = rows.tensor, num_heads(config)
    num_keys, num_values = config.integer("qk_nope_head_dim"), config.integer("v_head_dim")
    both = num_keys + num_values
    if len(tensor.shape) != 2 or tensor.shape[0] != heads * both:
        raise ConversionError(f"tensor {tensor.name[:100]!r} cannot have the shape {tensor.shape}")
    rank = tensor.shape[1]

    def part(name: str, begin: int, count: int, shape: tuple[int, ...]) -> PlannedTensor:
        return PlannedTensor(
            name=place.name.replace("attn_kv_b", name),
            shape=(heads, *shape),
            dtype=tensor.dtype,
            rows=tuple(Rows(tensor, head * both + begin, count, rows.scale) for head in range(heads)),
            is_transposed=name == "attn_k_b",
        )

    return [
        part("attn_k_b", 0, num_keys, (rank, num_keys)),
        part("attn_v_b", num_keys, num_values, (num_values, rank)),
    ]


def queries_to_gates(place: Place, rows: Rows, config: Config) -> list[PlannedTensor]:
    """Of linear attention, which has queries, keys, values and gates together for each of its heads."""
    tensor, heads = rows.tensor, config.integer("linear_num_key_heads", maximum=MAX_HEADS)
    keys = config.integer("linear_key_head_dim")
    values = (
        config.integer("linear_num_value_heads") // max(1, heads) * config.integer("linear_value_head_dim")
    )
    both = 2 * (keys + values)
    if len(tensor.shape) != 2 or not heads or tensor.shape[0] != heads * both:
        raise ConversionError(f"tensor {tensor.name[:100]!r} cannot have the shape {tensor.shape}")

    def of_heads(begin: int, count: int) -> tuple[Rows, ...]:
        return tuple(Rows(tensor, head * both + begin, count, rows.scale) for head in range(heads))

    parts = {
        "attn_qkv": of_heads(0, keys) + of_heads(keys, keys) + of_heads(2 * keys, values),
        "attn_gate": of_heads(2 * keys + values, values),
    }
    return [
        PlannedTensor(
            name=place.name.replace("ssm_in", name),
            shape=(sum(part.count for part in part_rows), tensor.shape[1]),
            dtype=tensor.dtype,
            rows=part_rows,
        )
        for name, part_rows in parts.items()
    ]
