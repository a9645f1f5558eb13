"""Which tensors a converted model has, and of which rows of the source each is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from puna.convert.errors import ConversionError
from puna.convert.models.config import Config
from puna.convert.models.family import Family
from puna.convert.models.hyperparameters import first_position
from puna.convert.models.names import Place, is_left_out, place_of
from puna.convert.models.rope import rope_tensors
from puna.convert.models.sizes import head_dim, num_experts, num_layers
from puna.convert.parts.experts import mxfp4
from puna.convert.parts.prediction_heads import num_kept_heads
from puna.convert.planned_tensor import PlannedTensor
from puna.convert.sources.header import SourceTensor
from puna.convert.sources.mxfp4 import BLOCKS, SCALES
from puna.convert.sources.values import Rows, all_rows, can_read

_F8_SCALES = (".weight_scale_inv", ".weight_scale", "_scale_inv", "_scale")
_OF_OTHERS = (SCALES, ".input_scale", ".k_scale", ".v_scale")
"""Endings of what belongs to another tensor, or to activations."""


def plan_model(
    family: Family, config: Config, sources: Mapping[str, SourceTensor]
) -> dict[str, PlannedTensor]:
    """By name. Raises ConversionError for tensors that are not known or do not fit each other."""
    planned: dict[str, PlannedTensor] = {}
    experts: dict[str, dict[int, Rows]] = {}
    for name, factors in rope_tensors(config, head_dim(config)).items():
        _add(planned, PlannedTensor(name=name, shape=factors.shape, dtype="F32", values=factors))
    scales = _scales(sources)
    of_others = {scale.name for scale in scales.values()}
    limit = num_layers(config) + num_kept_heads(family, config, sources)
    for name, tensor in sources.items():
        if is_left_out(name, family, limit) or name.endswith(_OF_OTHERS) or name in of_others:
            continue
        place = place_of(name, family)
        if place is None:
            raise ConversionError(f"tensor {name[:100]!r} is not known of {family.architecture}")
        if name.endswith(BLOCKS):
            block_scales = sources.get(name.removesuffix(BLOCKS) + SCALES)
            for part in mxfp4(place.name, place.kind, tensor, block_scales):
                _add(planned, part)
            continue
        _check_place(place, tensor, limit)
        rows = all_rows(tensor, scales.get(name))
        if place.expert is not None:
            _add_expert(experts, place, rows)
        elif split := family.parts.get(place.kind):
            for part in split(place.name, rows, config):
                _add(planned, replace(part, change=_change(part.name, family)))
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


def _check_place(place: Place, tensor: SourceTensor, num_layers: int) -> None:
    if not can_read(tensor.dtype):
        raise ConversionError(
            f"tensor {tensor.name[:100]!r}: values of type {tensor.dtype} cannot be converted"
        )
    if place.layer is not None and place.layer >= num_layers:
        raise ConversionError(f"tensor {tensor.name[:100]!r} is of a layer that config.json does not have")


def _scales(sources: Mapping[str, SourceTensor]) -> dict[str, SourceTensor]:
    """Of F8 tensors, by their names."""
    found = {}
    for name, tensor in sources.items():
        if not tensor.dtype.startswith("F8") or name.endswith(_F8_SCALES):
            continue
        stem = name.removesuffix(".weight")
        scale = next((sources[stem + ending] for ending in _F8_SCALES if stem + ending in sources), None)
        if scale is None:
            raise ConversionError(f"tensor {name[:100]!r} has no scale")
        if not can_read(scale.dtype):
            raise ConversionError(f"tensor {scale.name[:100]!r}: scales of type {scale.dtype} are not known")
        found[name] = scale
    return found


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
        change=_change(name, family),
    )


def _change(name: str, family: Family) -> Callable[[NDArray[np.float32]], NDArray[np.float32]] | None:
    if name.endswith(".ssm_a"):
        return lambda values: -np.exp(values.astype(np.float64)).astype(np.float32)
    is_norm = name.endswith("norm.weight") and not name.endswith(".ssm_norm.weight")
    return (lambda values: values + 1) if family.norms_add_one and is_norm else None


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
