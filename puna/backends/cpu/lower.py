"""From a graph to a native program: fuses what the executor does in one pass, maps values to buffers.

- Linears that read the same value become one instruction over one input (q/k/v, gate/up).
- The add of a residual joins the linear that produces its other operand.
- A rotation happens in place where nothing else reads its input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from puna._native import Program, ProgramBuilder
from puna.graph import Attention, Graph, Node, SlidingWindow, Value, ops


def lower(graph: Graph, builder: ProgramBuilder, *, by_window: bool = True) -> Program:
    """by_window: as in ProgramBuilder.build().

    Raises NativeError if a tensor is of the wrong type or shape for its op.
    """
    lowering = _Lowering(graph, builder)
    for node in graph.nodes:
        if node.output.id not in lowering.buffers:
            lowering.emit(node)
    return builder.build(lowering.buffers[graph.result.id], by_window)


class _Lowering:
    def __init__(self, graph: Graph, builder: ProgramBuilder) -> None:
        self.builder = builder
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
        emitters: dict[type, Callable[[Node], None]] = {
            ops.Linear: self._linear,
            ops.Rope: self._rope,
            Attention: self._attention,
        }
        emitters.get(type(node.op), self._simple)(node)

    def _new(self, value: Value) -> int:
        buffer = self.buffers[value.id] = self.builder.buffer(value.width)
        return buffer

    def _inputs(self, node: Node) -> list[int]:
        return [self.buffers[value.id] for value in node.inputs]

    def _simple(self, node: Node) -> None:
        b = self.builder
        inputs, out = self._inputs(node), self._new(node.output)
        match node.op, inputs:
            case ops.Embed(weight), []:
                b.embed(out, weight)
            case ops.RmsNorm(weight, eps, group), [x]:
                b.rms_norm(out, x, weight, eps, group)
            case ops.Glu(activation), [gate, up]:
                b.glu(out, gate, up, activation)
            case ops.Add(), [x, y]:
                b.add(out, x, y)
            case ops.Mul(), [x, y]:
                b.mul(out, x, y)
            case ops.Scale(factor), [x]:
                b.scale(out, x, factor)
            case ops.Softcap(cap), [x]:
                b.softcap(out, x, cap)
            case ops.Rows(), [x]:
                b.rows(out, x)
            case _:
                raise AssertionError(f"no lowering for {node.op}")

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
        linears = [n.op for n in group if isinstance(n.op, ops.Linear)]
        self.builder.linear(
            self.buffers[x.id],
            [self._new(n.output) for n in group],
            [op.weight for op in linears],
            [op.bias for op in linears],
            None,
        )

    def _fuse_residual(self, node: Node) -> bool:
        residual = self._residual(node)
        if residual is None or residual.id not in self.buffers:
            return False
        assert isinstance(node.op, ops.Linear)
        add = self._add_of[node.output.id]
        x, out = self.buffers[node.inputs[0].id], self._new(add.output)
        self.builder.linear(x, [out], [node.op.weight], [node.op.bias], self.buffers[residual.id])
        self.buffers[node.output.id] = out  # nothing else reads it
        return True

    def _residual(self, node: Node) -> Value | None:
        """What is added to the linear's output, if that is the only use of the output."""
        add = self._add_of.get(node.output.id)
        if add is None or self._uses[node.output.id] != 1:
            return None
        a, b = add.inputs
        return b if a.id == node.output.id else a

    def _rope(self, node: Node) -> None:
        assert isinstance(node.op, ops.Rope)
        x = node.inputs[0]
        if self._uses[x.id] == 1:
            out = self.buffers[node.output.id] = self.buffers[x.id]
        else:
            out = self._new(node.output)
            self.builder.scale(out, self.buffers[x.id], 1.0)
        config = node.op.config
        self.builder.rope(
            out, node.op.num_heads, node.op.head_dim, config.style, config.inv_freq, config.scale
        )

    def _attention(self, node: Node) -> None:
        op = node.op
        assert isinstance(op, Attention)
        q, k, v = self._inputs(node)
        self.builder.attention(
            self._new(node.output),
            q,
            k,
            v,
            op.layer,
            op.num_heads,
            op.num_kv_heads,
            op.head_dim,
            op.scale,
            op.softcap,
            op.state.size if isinstance(op.state, SlidingWindow) else 0,
        )
