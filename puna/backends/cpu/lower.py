"""From a graph to a native program: fuses what the executor does in one pass, maps values to buffers.

- Linears that read the same value become one instruction over one input (q/k/v, gate/up).
- The add of a residual joins the linear that produces its other operand.
- A rotation happens in place where nothing else reads its input.
"""

from __future__ import annotations

from collections import Counter

from puna._native import GgufFile, NativeError, Program, ProgramBuilder
from puna.graph import Graph, Node, Value, ops
from puna.graph.graph import made_of


def lower(
    graph: Graph,
    builder: ProgramBuilder,
    prediction: Graph | None = None,
    drafter: GgufFile | None = None,
) -> Program:
    """prediction: of a head, if the model has one. drafter: a file that it is in. Raises NativeError if a
    tensor is of the wrong type or shape for its op.
    """
    if graph.is_encoder:
        builder.set_encoder()
    result, hidden = _emit(graph, builder)
    if prediction is not None:
        builder.begin_prediction(drafter)
        builder.end_prediction(*_emit(prediction, builder))
    return builder.build(result, hidden=hidden)


def _emit(graph: Graph, builder: ProgramBuilder) -> tuple[int, int]:
    """The buffers of the result and of hidden states; -1: there are none."""
    lowering = _Lowering(graph, builder)
    for node in graph.nodes:
        if node.output.id not in lowering.buffers:
            lowering.emit(node)
    hidden = -1 if graph.hidden is None else lowering.buffers[graph.hidden.id]
    return lowering.buffers[graph.result.id], hidden


class _Lowering:
    def __init__(self, graph: Graph, builder: ProgramBuilder) -> None:
        self.builder = builder
        self._nodes = graph.nodes
        self.buffers: dict[int, int] = {}  # value id -> native buffer
        self._uses = Counter(value.id for node in graph.nodes for value in node.inputs)
        self._linears: dict[int, list[Node]] = {}  # input value id -> the linears that read it
        self._add_of: dict[int, Node] = {}  # operand id -> the one add that reads it
        for node in graph.nodes:
            if isinstance(node.op, ops.Linear):
                self._linears.setdefault(node.inputs[0].id, []).append(node)
            elif isinstance(node.op, ops.Add):
                self._add_of.update({value.id: node for value in node.inputs})

    def emit(self, node: Node) -> None:
        try:
            match node.op:
                case ops.Linear():
                    self._linear(node)
                case ops.Rope():
                    self._rope(node)
                case _:
                    self._op(node, self._new(node.output))
        except NativeError as error:
            tensors = "".join(f"; tensor {name}" for name in node.tensors[:1])
            raise NativeError(f"{error}{tensors or made_of(self._nodes, node.inputs)}") from None

    def _op(self, node: Node, out: int) -> None:
        inputs = [self.buffers[value.id] for value in node.inputs]
        self.builder.op(type(node.op).__name__, inputs, [out], node.tensors, **node.op.attributes)

    def _new(self, value: Value) -> int:
        buffer = self.buffers[value.id] = self.builder.buffer(value.width)
        return buffer

    def _linear(self, node: Node) -> None:
        x = node.inputs[0]
        if self._fuse_residual(node):
            return
        # A sibling is left out if it is to be fused with its residual, or was emitted before.
        group = [
            n
            for n in self._linears[x.id]
            if n is node or (self._residual(n) is None and n.output.id not in self.buffers)
        ]
        tensors = [tensor for n in group for tensor in n.tensors]
        self.builder.op("Linear", [self.buffers[x.id]], [self._new(n.output) for n in group], tensors)

    def _fuse_residual(self, node: Node) -> bool:
        residual = self._residual(node)
        if residual is None or residual.id not in self.buffers:
            return False
        out = self._new(self._add_of[node.output.id].output)
        inputs = [self.buffers[node.inputs[0].id], self.buffers[residual.id]]
        self.builder.op("Linear", inputs, [out], node.tensors)
        self.buffers[node.output.id] = out  # nothing else reads it
        return True

    def _residual(self, node: Node) -> Value | None:
        """The value that is added to the linear's output, if that is the only use of the output."""
        add = self._add_of.get(node.output.id)
        if add is None or self._uses[node.output.id] != 1:
            return None
        a, b = add.inputs
        return b if a.id == node.output.id else a

    def _rope(self, node: Node) -> None:
        """In place, of a copy where something else reads the input."""
        x = node.inputs[0]
        source = self.buffers[x.id]
        out = self.buffers[node.output.id] = source if self._uses[x.id] == 1 else self.builder.buffer(x.width)
        if out != source:
            self.builder.op("Scale", [source], [out], factor=1.0)
        self.builder.op("Rope", [out], [out], **node.op.attributes)
