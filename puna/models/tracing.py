"""Architectures applied to files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from puna.gguf.pooling import Pooling
from puna.graph import Graph, GraphError, Shapes, TensorShape, Tracer, Value
from puna.models.architectures import ARCHITECTURES, DRAFTERS
from puna.models.decoder import Stack
from puna.models.encoder import pooling_of
from puna.models.hyperparameters import HyperparameterError, Hyperparameters, described
from puna.models.kind import check_is_model
from puna.models.prediction import has_prediction_head
from puna.models.rope import FreqFactors, uses_long_factors

_FREQ_FACTORS = "rope_freqs.weight"
_LONG_FACTORS, _SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
_OF_IMAGES = ("mm.", "v.")

TraceFunction = Callable[[Tracer, Hyperparameters, FreqFactors | None], Value]


class TracedModel(msgspec.Struct, frozen=True, kw_only=True):
    """An architecture applied to a file's hyperparameters and tensor shapes."""

    architecture: str
    graph: Graph
    prediction: Graph | None
    """Of a head that predicts the token after next, whose attention is the layer behind the last."""
    context_length: int
    num_layers: int
    vocab_size: int
    pooling: Pooling
    """How a text becomes one vector."""


def trace_model(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, TensorShape],
    read_floats: Callable[[str], NDArray[np.float32]],
) -> TracedModel:
    """read_floats: gives a tensor's values; asked only for ones whose shape has been checked.

    Raises HyperparameterError or GraphError, whose text names the metadata key or the tensor.
    """
    check_is_model(metadata)
    p = Hyperparameters(metadata)
    if p.architecture not in ARCHITECTURES:
        raise HyperparameterError(
            f"metadata general.architecture: {described(p.architecture)} is not supported"
        )
    architecture = _architecture(p.architecture)
    used: set[str] = set()
    freq_factors = read_freq_factors(p, tensors, read_floats, used)
    tracer = Tracer(Shapes(tensors))
    graph, stack = tracer.graph(architecture.trace(tracer, p, freq_factors)), Stack.read(p)
    pooling = pooling_of(p) or ("mean" if graph.is_encoder else "last")
    used |= graph.tensors() | tracer.left_out | _of_prediction(stack, tensors) | _of_scores(pooling, tensors)
    prediction = None
    if (trace := architecture.trace_prediction) and has_prediction_head(tracer.shapes, stack):
        tracer = Tracer(tracer.shapes)
        prediction = tracer.graph(trace(tracer, p, freq_factors)) if pooling != "rank" else None
    check_all_are_used(p.architecture, tensors, used)
    return TracedModel(
        architecture=p.architecture,
        graph=graph,
        prediction=prediction,
        context_length=stack.context_length,
        num_layers=stack.num_layers,
        vocab_size=tracer.shapes.matrix("token_embd.weight")[1] if graph.is_encoder else graph.result.width,
        pooling=pooling,
    )


def import_architectures() -> None:
    """All of them, instead of each when a model has it: for processes that can open no file of code later."""
    for place in (*ARCHITECTURES.values(), *DRAFTERS.values()):
        import_module(f"puna.models.architectures.{place}")


class _Architecture(NamedTuple):
    trace: TraceFunction
    trace_prediction: TraceFunction | None


def _architecture(name: str) -> _Architecture:
    module = import_module(f"puna.models.architectures.{ARCHITECTURES[name]}")
    return _Architecture(module.trace, getattr(module, "trace_prediction", None))


def read_freq_factors(
    p: Hyperparameters,
    tensors: Mapping[str, TensorShape],
    read_floats: Callable[[str], NDArray[np.float32]],
    used: set[str],
) -> FreqFactors | None:
    """used: gets the tensor's name, and that of the one in whose place it is, when it is read."""
    name, other = _FREQ_FACTORS, _FREQ_FACTORS
    if name not in tensors and _LONG_FACTORS in tensors:
        name, other = _LONG_FACTORS, _SHORT_FACTORS
        if not uses_long_factors(p):
            name, other = other, name
    if name not in tensors:
        return None
    num_values = math.prod(tensors[name].shape)

    def read(count: int) -> NDArray[np.float32]:
        if num_values != count:
            raise HyperparameterError(f"tensor {name} has {num_values} values, the model needs {count}")
        used.update((name, other))
        return read_floats(name).reshape(count)

    return read


def _of_prediction(stack: Stack, tensors: Mapping[str, TensorShape]) -> set[str]:
    """Of heads that predict further tokens: they change no result."""
    layers = range(stack.num_layers, stack.num_layers + stack.num_prediction_layers)
    prefixes = tuple(f"blk.{layer}." for layer in layers)
    return {name for name in tensors if name.startswith(prefixes)}


def _of_scores(pooling: Pooling, tensors: Mapping[str, TensorShape]) -> set[str]:
    """What files have to rank texts with, if they are not to be used for that."""
    return set() if pooling == "rank" else {name for name in tensors if name.startswith("cls.")}


def check_all_are_used(architecture: str, tensors: Mapping[str, TensorShape], used: set[str]) -> None:
    """A tensor that nothing reads means a variant of the architecture that would silently run wrong."""
    if unused := sorted(tensors.keys() - used):
        if unused[0].startswith(_OF_IMAGES):
            raise GraphError(f"tensor {unused[0]}: models that read images are not supported")
        more = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        raise GraphError(f"tensor {unused[0]}{more}: not part of architecture {architecture!r} as supported")
