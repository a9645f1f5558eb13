"""Which architectures there are: each is one file, named as GGUF names it, with one function `trace`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from puna.graph import Graph, GraphError, Tracer, Value
from puna.graph.graph import TensorShape
from puna.models.decoder import Decoder
from puna.models.hyperparameters import HyperparameterError, Hyperparameters

ARCHITECTURES = ("llama", "qwen2", "qwen3")

TraceFunction = Callable[[Tracer, Hyperparameters, NDArray[np.float32] | None], Value]


class TracedModel(msgspec.Struct, frozen=True, kw_only=True):
    """An architecture applied to a file's hyperparameters and tensor shapes."""

    architecture: str
    graph: Graph
    context_length: int
    num_layers: int

    @property
    def vocab_size(self) -> int:
        return self.graph.result.width


def trace_model(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, TensorShape],
    freq_factors: NDArray[np.float32] | None,
) -> TracedModel:
    """freq_factors: the content of the tensor rope_freqs.weight, if there is one.

    Raises HyperparameterError or GraphError, whose text names the metadata key or the tensor.
    """
    p = Hyperparameters(metadata)
    if p.architecture not in ARCHITECTURES:
        raise HyperparameterError(
            f"architecture {p.architecture!r} is not supported (supported: {', '.join(ARCHITECTURES)})"
        )
    trace = cast(TraceFunction, import_module(f"puna.models.{p.architecture}").trace)
    tracer = Tracer(tensors)
    result = trace(tracer, p, freq_factors)
    graph = tracer.graph(result)
    _check_all_are_used(p.architecture, tensors, graph)
    d = Decoder.read(p)
    return TracedModel(
        architecture=p.architecture,
        graph=graph,
        context_length=d.context_length,
        num_layers=d.num_layers,
    )


def _check_all_are_used(architecture: str, tensors: Mapping[str, TensorShape], graph: Graph) -> None:
    """A tensor that nothing reads means a variant of the architecture that would silently run wrong."""
    used = {"rope_freqs.weight", *graph.tensors()}
    if unused := sorted(tensors.keys() - used):
        more = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        raise GraphError(f"tensor {unused[0]}{more}: not part of architecture {architecture!r} as supported")
