"""Which tensors a converted model has, and of which rows of the source each is made."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.family import Family
from puna.convert.models.hyperparameters import first_position, head_dim, num_experts, num_heads, num_layers
from puna.convert.models.names import Place, is_left_out, place_of
from puna.convert.models.rope import rope_tensors
from puna.convert.sources.header import SourceTensor
from puna.convert.sources.mxfp4 import BLOCKS, SCALES, TYPE, Mxfp4, find_mxfp4
from puna.convert.sources.values import Rows, all_rows, can_read

_LATENT_KV = ".attn_kv_b.weight"
_SCALES = (".weight_scale_inv", ".weight_scale")
_OF_OTHERS = (*_SCALES, SCALES, ".input_scale", ".k_scale", ".v_scale")
"""Endings of what belongs to another tensor, or to activations."""
_GATE_AND_UP, _PARTS = "ffn_gate_up_exps", ("ffn_gate_exps", "ffn_up_exps")


class PlannedTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of the output."""

    name: str
    shape: tuple[int, ...]
    """Slowest first, as in NumPy."""
    dtype: str
    """Of the source's values."""
    rows: tuple[Rows, ...] = ()
    """One after the other they are all of its rows."""
    values: NDArray[np.float32] | None = None
    """In place of rows."""
    pair_rows: int = 0
    """So many rows are a head, of which the first half is interleaved with the second; 0: all stay."""
    adds_one: bool = False
    every: tuple[int, int] = (0, 1)
    """Of the columns, (first, step)."""
    is_transposed: bool = False
    """Each of `rows` is a matrix whose rows are columns here."""
    mxfp4: Mxfp4 | None = None
    """In place of rows."""

    @property
    def is_lossless(self) -> bool:
        """The source's bytes can be taken as they are."""
        has_all = self.values is None and self.mxfp4 is None and self.every == (0, 1)
        is_same = not self.adds_one and not self.is_transposed
        return has_all and is_same and all(rows.scale is None for rows in self.rows)


def plan_model(
    family: Family, config: Config, sources: Mapping[str, SourceTensor]
) -> dict[str, PlannedTensor]:
    """By name. Raises ConversionError for tensors that are not known or do not fit each other."""
    planned: dict[str, PlannedTensor] = {}
    experts: dict[str, dict[int, Rows]] = {}
    for name, factors in rope_tensors(config, head_dim(config)).items():
        _add(planned, PlannedTensor(name=name, shape=factors.shape, dtype="F32", values=factors))
    for name, tensor in sources.items():
        if is_left_out(name, family, num_layers(config)) or name.endswith(_OF_OTHERS):
            continue
        place = place_of(name, family)
        if place is None:
            raise ConversionError(f"tensor {name[:100]!r} is not known of {family.architecture}")
        if name.endswith(BLOCKS):
            scales = sources.get(name.removesuffix(BLOCKS) + SCALES)
            for part in _mxfp4(place, tensor, scales):
                _add(planned, part)
            continue
        _check_place(place, tensor, config)
        rows = all_rows(tensor, _scale_of(name, sources))
        if place.expert is not None:
            _add_expert(experts, place, rows)
        elif place.name.endswith(_LATENT_KV):
            for part in _keys_and_values(place, rows, config):
                _add(planned, part)
        elif _GATE_AND_UP in place.name:
            split = _interleaved_gate_and_up if family.interleaves_gate_and_up else _gate_and_up
            for part in split(place, tensor):
                _add(planned, part)
        else:
            _add(planned, _plain(place.name, rows, family, config))
    for name, parts in experts.items():
        _add(planned, _merged(name, parts, config))
    return planned


def _add(planned: dict[str, PlannedTensor], tensor: PlannedTensor) -> None:
    if tensor.name in planned:
        raise ConversionError(f"there are two tensors for {tensor.name}")
    if not math.prod(tensor.shape) or len(tensor.shape) > 4:
        raise ConversionError(f"{tensor.name} cannot have the shape {tensor.shape}")
    planned[tensor.name] = tensor


def _check_place(place: Place, tensor: SourceTensor, config: Config) -> None:
    if not can_read(tensor.dtype):
        raise ConversionError(
            f"tensor {tensor.name[:100]!r}: values of type {tensor.dtype} cannot be converted"
        )
    if place.layer is not None and place.layer >= num_layers(config):
        raise ConversionError(f"tensor {tensor.name[:100]!r} is of a layer that config.json does not have")


def _scale_of(name: str, sources: Mapping[str, SourceTensor]) -> SourceTensor | None:
    stem = name.removesuffix(".weight")
    scale = next((sources[stem + ending] for ending in _SCALES if stem + ending in sources), None)
    if scale is None and sources[name].dtype.startswith("F8"):
        raise ConversionError(f"tensor {name[:100]!r} has no scale")
    if scale is not None and not can_read(scale.dtype):
        raise ConversionError(f"tensor {scale.name[:100]!r}: scales of type {scale.dtype} are not known")
    return scale


def _plain(name: str, rows: Rows, family: Family, config: Config) -> PlannedTensor:
    tensor = rows.tensor
    shape = tensor.shape
    if name == "position_embd.weight" and (begin := first_position(family, config)):
        if len(shape) != 2 or shape[0] <= begin:
            raise ConversionError(f"tensor {tensor.name[:100]!r} cannot have the shape {shape}")
        shape = (shape[0] - begin, shape[1])
        rows = Rows(tensor, begin, shape[0], rows.scale)
    if len(shape) == 3 and shape[1] == 1:  # a convolution over each channel
        shape = (shape[0], shape[2])
    return PlannedTensor(
        name=name,
        shape=shape or (1,),
        dtype=tensor.dtype,
        rows=(rows,),
        pair_rows=pair_rows(name, tensor, family, head_dim(config)),
        adds_one=family.norms_add_one and name.endswith("_norm.weight"),
    )


def pair_rows(name: str, tensor: SourceTensor, family: Family, head_dim: int) -> int:
    """Of queries and keys, as PlannedTensor has it. Raises ConversionError if they are no whole heads."""
    if not family.pairs_halves or (".attn_q." not in name and ".attn_k." not in name):
        return 0
    if not tensor.shape or head_dim < 2 or head_dim % 2 or tensor.shape[0] % head_dim:
        raise ConversionError(f"tensor {tensor.name[:100]!r} has no whole number of heads")
    return head_dim


def _add_expert(experts: dict[str, dict[int, Rows]], place: Place, rows: Rows) -> None:
    parts = experts.setdefault(place.name, {})
    assert place.expert is not None
    if place.expert in parts:
        raise ConversionError(f"there are two tensors for expert {place.expert} of {place.name}")
    parts[place.expert] = rows


def _merged(name: str, parts: Mapping[int, Rows], config: Config) -> PlannedTensor:
    """The experts' matrices, one after the other."""
    count = num_experts(config)
    if parts.keys() != set(range(count)):
        raise ConversionError(f"{name} has {len(parts)} experts; config.json has {count}")
    tensors = [parts[expert].tensor for expert in range(count)]
    first = tensors[0]
    if any((tensor.shape, tensor.dtype) != (first.shape, first.dtype) for tensor in tensors):
        raise ConversionError(f"the experts of {name} differ in shape or type")
    return PlannedTensor(
        name=name,
        shape=(count, *first.shape),
        dtype=first.dtype,
        rows=tuple(parts[expert] for expert in range(count)),
    )


def _gate_and_up(place: Place, tensor: SourceTensor) -> list[PlannedTensor]:
    """Of each expert the first half of the rows is the gate."""
    if len(tensor.shape) != 3 or tensor.shape[1] % 2:
        raise ConversionError(f"tensor {tensor.name[:100]!r} cannot have the shape {tensor.shape}")
    count, both, width = tensor.shape
    half = both // 2
    return [
        PlannedTensor(
            name=place.name.replace(_GATE_AND_UP, part),
            shape=(count, half, width),
            dtype=tensor.dtype,
            rows=tuple(Rows(tensor, expert * both + begin, half) for expert in range(count)),
        )
        for part, begin in zip(_PARTS, (0, half), strict=True)
    ]


def _interleaved_gate_and_up(place: Place, tensor: SourceTensor) -> list[PlannedTensor]:
    """Of biases: of each expert every second value is the gate's."""
    if len(tensor.shape) != 2 or tensor.shape[1] % 2:
        raise ConversionError(f"tensor {tensor.name[:100]!r}: experts can be converted in MXFP4 only")
    return [
        PlannedTensor(
            name=place.name.replace(_GATE_AND_UP, part),
            shape=(tensor.shape[0], tensor.shape[1] // 2),
            dtype=tensor.dtype,
            rows=(all_rows(tensor),),
            every=(first, 2),
        )
        for first, part in enumerate(_PARTS)
    ]


def _mxfp4(place: Place, blocks: SourceTensor, scales: SourceTensor | None) -> list[PlannedTensor]:
    """Of gates and what they gate, row by row in turn."""
    is_both = _GATE_AND_UP in place.name
    names = [place.name.replace(_GATE_AND_UP, part) for part in _PARTS] if is_both else [place.name]
    parts = find_mxfp4(blocks, scales, len(names))
    return [
        PlannedTensor(name=name, shape=part.shape, dtype=TYPE, mxfp4=part)
        for name, part in zip(names, parts, strict=True)
    ]


def _keys_and_values(place: Place, rows: Rows, config: Config) -> list[PlannedTensor]:
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
