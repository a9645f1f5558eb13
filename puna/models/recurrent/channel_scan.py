"""The layer of Mamba (Gu & Dao, 2023): a short convolution, a scan with a state for each column, a gate."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.graph.ops import ChannelScan, Columns, Glu, Linear, ShortConv
from puna.models.blocks import norm, unit_norm
from puna.models.decoder import Stack
from puna.models.hyperparameters import Hyperparameters


def mamba(g: Tracer, p: Hyperparameters, d: Stack, layer: int, x: Value) -> Value:
    """What the layer adds to x, of which this is the normalised form."""
    block = f"blk.{layer}"
    rank, state_dim = (p.integer(f"ssm.{name}", maximum=1 << 16) for name in ("time_step_rank", "state_size"))
    mixed = g.op(Linear(f"{block}.ssm_in"), x)
    width = mixed.width // 2
    scanned, gate = (g.op(Columns(begin, width, mixed.width), mixed) for begin in (0, width))
    scanned = g.op(ShortConv(layer, f"{block}.ssm_conv1d", "silu"), scanned)
    parts = g.op(Linear(f"{block}.ssm_x"), scanned)
    cuts = ((0, rank, "dt"), (rank, state_dim, "b"), (rank + state_dim, state_dim, "c"))
    dt, b, c = (
        _normed(g, p, d, g.op(Columns(begin, size, rank + 2 * state_dim), parts), f"{block}.ssm_{name}_norm")
        for begin, size, name in cuts
    )
    op = ChannelScan(layer, f"{block}.ssm", state_dim)
    y = g.op(op, scanned, b, c, g.op(Linear(f"{block}.ssm_dt"), dt))
    return g.op(Linear(f"{block}.ssm_out"), g.op(Glu("silu"), gate, y))


def _normed(g: Tracer, p: Hyperparameters, d: Stack, x: Value, name: str) -> Value:
    """As Jamba does it, with a weight, and Falcon-Mamba, without."""
    if f"{name}.weight" in g.shapes:
        return norm(g, d, x, name)
    if not p.flag("ssm.dt_b_c_rms"):
        return x
    return unit_norm(g, d, x)
