"""The layer of Mamba-2 (Dao & Gu, 2024): a short convolution, a selective scan and a gate."""

from __future__ import annotations

import msgspec

from puna.graph import GraphError, Tracer, Value
from puna.graph.graph import made_of
from puna.graph.ops import Columns, Glu, Linear, SelectiveScan, ShortConv
from puna.models.blocks import norm
from puna.models.decoder import Stack
from puna.models.hyperparameters import HyperparameterError, Hyperparameters


class Mamba2(msgspec.Struct, frozen=True):
    """Sizes of the layer."""

    width: int
    """Of what is scanned: all heads."""
    num_heads: int
    num_groups: int
    """Of heads that share what writes and reads their states."""
    state_dim: int

    @property
    def head_dim(self) -> int:
        return self.width // self.num_heads

    @classmethod
    def read(cls, p: Hyperparameters) -> Mamba2:
        width, num_heads = p.integer("ssm.inner_size"), p.integer("ssm.time_step_rank", maximum=1 << 16)
        if width % num_heads:
            raise HyperparameterError(
                f"metadata {p.key('ssm.inner_size')}: {width} cannot be shared out over {num_heads} heads"
            )
        return cls(
            width=width,
            num_heads=num_heads,
            num_groups=p.integer("ssm.group_count", maximum=num_heads),
            state_dim=p.integer("ssm.state_size", maximum=1 << 16),
        )


def mamba2(g: Tracer, d: Stack, sizes: Mamba2, layer: int, x: Value) -> Value:
    """What the layer adds to x, of which this is the normalised form."""
    block, groups = f"blk.{layer}", sizes.num_groups * sizes.state_dim
    mixed = g.op(Linear(f"{block}.ssm_in"), x)
    gate, scanned, dt = _cut(g, mixed, sizes.width, sizes.width + 2 * groups, sizes.num_heads)
    scanned = g.op(ShortConv(layer, f"{block}.ssm_conv1d", "silu"), scanned)
    y, b, c = _cut(g, scanned, sizes.width, groups, groups)
    op = SelectiveScan(
        layer=layer,
        name=f"{block}.ssm",
        num_heads=sizes.num_heads,
        head_dim=sizes.head_dim,
        num_groups=sizes.num_groups,
        state_dim=sizes.state_dim,
    )
    y = g.op(Glu("silu"), gate, g.op(op, y, b, c, dt))
    if f"{block}.ssm_norm.weight" in g.shapes:
        y = norm(g, d, y, f"{block}.ssm_norm")
    return g.op(Linear(f"{block}.ssm_out"), y)


def _cut(g: Tracer, x: Value, *sizes: int) -> list[Value]:
    """Columns of these sizes, one after the other. Raises GraphError if there are more or fewer."""
    if sum(sizes) != x.width:
        needed = " and ".join(map(str, sizes))
        raise GraphError(f"a width of {x.width} is not {needed}{made_of(g.nodes, [x])}")
    begins = [sum(sizes[:i]) for i in range(len(sizes))]
    return [g.op(Columns(begin, size, x.width), x) for begin, size in zip(begins, sizes, strict=True)]
