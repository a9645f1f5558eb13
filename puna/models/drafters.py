"""Drafters: files of their own that read what another model computes, and predict what it will say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from puna.graph import Graph, Shapes, TensorShape, Tracer
from puna.models.architectures import DRAFTERS
from puna.models.hyperparameters import HyperparameterError, Hyperparameters, described
from puna.models.tracing import check_all_are_used, read_freq_factors

OF_DRAFTER = "draft:"
"""What stands before the names of a drafter's tensors in graphs, among the model's."""


def is_drafter(metadata: Mapping[str, Any]) -> bool:
    """Or a model, which drafts on its own."""
    return metadata.get("general.architecture") in DRAFTERS


def trace_drafter(
    model_metadata: Mapping[str, Any],
    model_tensors: Mapping[str, TensorShape],
    metadata: Mapping[str, Any],
    tensors: Mapping[str, TensorShape],
    read_floats: Callable[[str], NDArray[np.float32]],
) -> Graph:
    """A drafter as a model's prediction head. metadata, tensors, read_floats: of the drafter's file.

    Raises HyperparameterError or GraphError, whose text names the metadata key or the tensor.
    """
    model, p = Hyperparameters(model_metadata), Hyperparameters(metadata)
    module = import_module(f"puna.models.architectures.{DRAFTERS[p.architecture]}")
    if model.architecture != module.MODEL:
        raise HyperparameterError(
            f"metadata general.architecture: {described(p.architecture)} does not draft for "
            f"{described(model.architecture)}"
        )
    used: set[str] = set()
    freq_factors = read_freq_factors(p, tensors, read_floats, used)
    own = {f"{OF_DRAFTER}{name}": tensor for name, tensor in tensors.items()}
    tracer = Tracer(Shapes({**model_tensors, **own}))
    graph = tracer.graph(module.trace(tracer, p, freq_factors, model, OF_DRAFTER))
    used |= {name.removeprefix(OF_DRAFTER) for name in graph.tensors() | tracer.left_out if name in own}
    check_all_are_used(p.architecture, tensors, used)
    return graph
