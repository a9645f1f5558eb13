"""Graphs of ops, and the tracer that records them while an architecture's function runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from puna.graph.ops import EncoderAttention, Op, Stateful
from puna.graph.shapes import GraphError, Shapes
from puna.graph.states import Recurrent, StateSpec


@dataclass(frozen=True, slots=True)
class Value:
    """What an op produces: float32 [tokens, width]."""

    id: int
    width: int


@dataclass(frozen=True, slots=True)
class Node:
    """One op applied to values and tensors."""

    op: Op
    inputs: tuple[Value, ...]
    tensors: tuple[str | None, ...]
    output: Value


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in execution order, the value that holds the logits, and what layers keep, in their order.

    hidden: the value that may be asked for in place of logits, None: there is none. Of decoders hidden
    states, of encoders a whole text's embedding, of models that rank its scores.
    """

    nodes: tuple[Node, ...]
    result: Value
    states: tuple[StateSpec, ...]
    hidden: Value | None

    @property
    def is_encoder(self) -> bool:
        """Whether texts are computed whole, and give no logits."""
        return any(isinstance(node.op, EncoderAttention) for node in self.nodes)

    def tensors(self) -> set[str]:
        """The names of all tensors that ops read."""
        return {tensor for node in self.nodes for tensor in node.tensors if tensor is not None}


def made_of(nodes: Sequence[Node], values: Sequence[Value]) -> str:
    """For error texts: the tensors nearest before these values, of which nodes[i] made value i."""
    names = []
    for value in values:
        node = nodes[value.id]
        while not any(node.tensors) and node.inputs:
            node = nodes[node.inputs[0].id]
        names += [name for name in node.tensors[:1] if name is not None]
    return "".join(f"; behind tensor {name}" for name in dict.fromkeys(names))


@dataclass(slots=True)
class Tracer:
    """Records the ops that an architecture's function calls, checking shapes as it goes."""

    shapes: Shapes
    nodes: list[Node] = field(default_factory=list)
    states: dict[tuple[int, bool], StateSpec] = field(default_factory=dict)  # by layer and whether recurrent
    left_out: set[str] = field(default_factory=set)
    """Tensors that files may have and no op reads."""
    hidden: Value | None = None
    """See Graph."""

    def op(self, op: Op, *inputs: Value) -> Value:
        """What the op makes of the inputs. Raises GraphError if it cannot."""
        try:
            width = op.width(self.shapes, [value.width for value in inputs])
        except GraphError as error:
            raise GraphError(f"{error}{made_of(self.nodes, inputs)}") from None
        output = Value(len(self.nodes), width)
        if isinstance(op, Stateful):
            self._keep(op.layer, op.state(self.shapes))
        self.nodes.append(Node(op, inputs, op.tensors(self.shapes), output))
        return output

    def leave_out(self, tensor: str) -> None:
        """Of a tensor that changes nothing."""
        self.left_out.add(tensor)

    def _keep(self, layer: int, state: StateSpec) -> None:
        """Recurrent states of a layer are one; an attention may stand beside them."""
        place = layer, isinstance(state, Recurrent)
        known = self.states.get(place)
        if isinstance(known, Recurrent) and isinstance(state, Recurrent):
            state = Recurrent(known.num_values + state.num_values)
        elif known is not None:
            raise GraphError(f"layer {layer} has two attentions")
        self.states[place] = state

    def graph(self, result: Value) -> Graph:
        states = tuple(self.states[place] for place in sorted(self.states))
        return Graph(nodes=tuple(self.nodes), result=result, states=states, hidden=self.hidden)
