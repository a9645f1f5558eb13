"""A model's file, and the drafter's that it brings along, made a program."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from puna._native import NativeError, Program, ProgramBuilder
from puna.backends.base import ModelSource
from puna.backends.cpu.lower import lower
from puna.gguf import GgufError, GgufFile, TensorInfo
from puna.graph import GraphError
from puna.models import OF_DRAFTER, TracedModel, is_drafter, trace_drafter, trace_model
from puna.models.hyperparameters import HyperparameterError

log = logging.getLogger(__name__)


class Compiled(NamedTuple):
    traced: TracedModel
    program: Program
    tensors: Mapping[str, TensorInfo]
    """Of both files, as graphs name them."""
    has_drafter: bool


def open_drafter(source: ModelSource) -> GgufFile | None:
    """None: the model brings none along, or a whole model, or a file that cannot be read."""
    if not source.drafter:
        return None
    try:
        file = GgufFile.from_descriptor(source.drafter[0], f"the drafter of {source.name}")
    except GgufError as error:
        log.warning("%s goes without its drafter: %s", source.name, error)
        return None
    if is_drafter(file.metadata):
        return file
    file.close()
    return None


def compile_files(file: GgufFile, drafter: GgufFile | None, isa: str, kv_type: str) -> Compiled:
    """Without the drafter where that does not go with the model. isa, kv_type: as in ProgramBuilder.

    Raises HyperparameterError, GraphError, NativeError.
    """
    traced = trace_model(file.metadata, file.tensors, file.dequantize)
    if drafter is not None:
        try:
            return _with_drafter(file, drafter, traced, ProgramBuilder(file.native, isa, kv_type))
        except (HyperparameterError, GraphError, GgufError, NativeError) as error:
            log.warning("%s goes without its drafter: %s", file.name, error)
    program = lower(traced.graph, ProgramBuilder(file.native, isa, kv_type), traced.prediction)
    return Compiled(traced, program, file.tensors, has_drafter=False)


def _with_drafter(
    file: GgufFile, drafter: GgufFile, traced: TracedModel, builder: ProgramBuilder
) -> Compiled:
    """Which goes before a head in the model's own file."""
    prediction = trace_drafter(
        file.metadata, file.tensors, drafter.metadata, drafter.tensors, drafter.dequantize
    )
    program = lower(traced.graph, builder, prediction, drafter.native)
    own = {f"{OF_DRAFTER}{name}": tensor for name, tensor in drafter.tensors.items()}
    traced = msgspec.structs.replace(traced, prediction=prediction)
    return Compiled(traced, program, {**file.tensors, **own}, has_drafter=True)
