"""Graphs of ops, and the tracer that records them while an architecture's function runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from puna.graph import ops
from puna.graph.states import StateSpec


class GraphError(ValueError):
    """Tensors whose shapes do not fit the architecture; the text names them."""


class TensorShape(Protocol):
    """All the tracer needs to know of a tensor."""

    @property
    def shape(self) -> tuple[int, ...]:
        """In GGUF order: columns first."""


@dataclass(frozen=True, slots=True)
class Value:
    """What an op produces: float32 [tokens, width]."""

    id: int
    width: int


@dataclass(frozen=True, slots=True)
class Node:
    """One op applied to values."""

    op: ops.Op
    inputs: tuple[Value, ...]
    output: Value


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in execution order, the value that holds the logits, and what each layer keeps."""

    nodes: tuple[Node, ...]
    result: Value
    states: tuple[StateSpec, ...]

    def tensors(self) -> set[str]:
        """The names of all tensors that ops read."""
        names: set[str] = set()
        for node in self.nodes:
            match node.op:
                case ops.Embed(weight) | ops.RmsNorm(weight):
                    names.add(weight)
                case ops.Linear(weight, bias):
                    names.update((weight,) if bias is None else (weight, bias))
        return names


@dataclass(slots=True)
class Tracer:
    """Records the ops that an architecture's function calls, checking shapes as it goes.

    Weights are named as in GGUF without ".weight"; a ".bias" of the same name is used where the file has one.
    """

    tensors: Mapping[str, TensorShape]
    nodes: list[Node] = field(default_factory=list)
    states: dict[int, StateSpec] = field(default_factory=dict)  # by layer

    def graph(self, result: Value) -> Graph:
        if missing := [layer for layer in range(max(self.states, default=-1)) if layer not in self.states]:
            raise GraphError(f"layer {missing[0]} has no attention")
        states = tuple(self.states[layer] for layer in sorted(self.states))
        return Graph(nodes=tuple(self.nodes), result=result, states=states)

    def has(self, name: str) -> bool:
        return f"{name}.weight" in self.tensors

    def rows_of(self, name: str) -> int:
        return self._shape(f"{name}.weight", 2)[1]

    def embed(self, name: str) -> Value:
        weight = f"{name}.weight"
        return self._node(ops.Embed(weight), (), self._shape(weight, 2)[0])

    def rms_norm(self, x: Value, name: str, eps: float) -> Value:
        """Over the whole width, or over each head where the weight is as long as a head."""
        weight = f"{name}.weight"
        (group,) = self._shape(weight, 1)
        if x.width % group:
            raise GraphError(
                f"tensor {weight} has {group} values, which does not divide a width of {x.width}"
            )
        return self._node(ops.RmsNorm(weight, eps, group), (x,), x.width)

    def linear(self, x: Value, name: str) -> Value:
        weight, bias = f"{name}.weight", f"{name}.bias"
        columns, rows = self._shape(weight, 2)
        if columns != x.width:
            raise GraphError(f"tensor {weight} has rows of {columns} values where the model needs {x.width}")
        has_bias = bias in self.tensors
        if has_bias and self._shape(bias, 1) != (rows,):
            raise GraphError(
                f"tensor {bias} has shape {self.tensors[bias].shape} where the model needs ({rows},)"
            )
        return self._node(ops.Linear(weight, bias if has_bias else None), (x,), rows)

    def add(self, a: Value, b: Value) -> Value:
        return self._node(ops.Add(), self._same_width(a, b), a.width)

    def mul(self, a: Value, b: Value) -> Value:
        return self._node(ops.Mul(), self._same_width(a, b), a.width)

    def glu(self, gate: Value, up: Value, activation: str) -> Value:
        return self._node(ops.Glu(activation), self._same_width(gate, up), gate.width)

    def scale(self, x: Value, factor: float) -> Value:
        return self._node(ops.Scale(factor), (x,), x.width)

    def softcap(self, x: Value, cap: float) -> Value:
        return self._node(ops.Softcap(cap), (x,), x.width)

    def rope(self, x: Value, head_dim: int, config: ops.RopeConfig) -> Value:
        rotary_dim = 2 * len(config.inv_freq)
        if rotary_dim > head_dim or x.width % head_dim:
            raise GraphError(
                f"cannot rotate {rotary_dim} dimensions of heads of {head_dim} in a width of {x.width}"
            )
        return self._node(ops.Rope(x.width // head_dim, head_dim, config), (x,), x.width)

    def attention(self, q: Value, k: Value, v: Value, attributes: ops.Attention) -> Value:
        if attributes.layer in self.states:
            raise GraphError(f"layer {attributes.layer} has two attentions")
        q_width = attributes.num_heads * attributes.head_dim
        kv_width = attributes.num_kv_heads * attributes.head_dim
        if (q.width, k.width, v.width) != (q_width, kv_width, kv_width):
            raise GraphError(
                f"layer {attributes.layer}: q, k, v are {q.width}, {k.width}, {v.width} wide, where "
                f"{attributes.num_heads} heads and {attributes.num_kv_heads} KV heads of "
                f"{attributes.head_dim} need {q_width}, {kv_width}, {kv_width}"
            )
        self.states[attributes.layer] = attributes.state
        return self._node(attributes, (q, k, v), q_width)

    def rows(self, x: Value) -> Value:
        return self._node(ops.Rows(), (x,), x.width)

    def _node(self, op: ops.Op, inputs: tuple[Value, ...], width: int) -> Value:
        output = Value(len(self.nodes), width)
        self.nodes.append(Node(op, inputs, output))
        return output

    def _shape(self, tensor: str, dimensions: int) -> tuple[int, ...]:
        """The shape without trailing ones, checked to have `dimensions` dimensions."""
        if tensor not in self.tensors:
            raise GraphError(f"tensor {tensor} is missing")
        shape = self.tensors[tensor].shape
        while len(shape) > dimensions and shape[-1] == 1:
            shape = shape[:-1]
        if len(shape) != dimensions:
            raise GraphError(
                f"tensor {tensor} has {len(shape)} dimensions where the model needs {dimensions}"
            )
        return shape

    @staticmethod
    def _same_width(a: Value, b: Value) -> tuple[Value, Value]:
        if a.width != b.width:
            raise GraphError(f"values of {a.width} and {b.width} columns cannot be combined")
        return a, b
