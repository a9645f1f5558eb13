"""Parts of encoders: how they attend, and how a text's tokens become one vector."""

from __future__ import annotations

from puna.gguf.pooling import POOLING_TYPES, Pooling
from puna.graph import Tracer, Value
from puna.graph.ops import (
    Activation,
    EncoderAttention,
    LayerNorm,
    Linear,
    PooledRows,
    Rope,
    Rows,
)
from puna.models.decoder import Decoder
from puna.models.hyperparameters import HyperparameterError, Hyperparameters
from puna.models.ranking import NoScores


def pooling_of(p: Hyperparameters) -> Pooling | None:
    """As the file says; None: it says nothing. Raises HyperparameterError."""
    return POOLING_TYPES[p.integer("pooling_type", 0, minimum=0, maximum=len(POOLING_TYPES) - 1)]


def encoder_attention(
    g: Tracer,
    d: Decoder,
    name: str,
    rope: Rope | None,
    qkv: tuple[Value, Value, Value],
    *,
    scale: float | None = None,
    window: int = 0,
    alibi: float = 0.0,
    buckets: str = "",
) -> Value:
    """Attention over rotated q and k, and its output projection, of that name.

    scale: of scores; without one it is 1 / sqrt(head_dim). The others: as of EncoderAttention.
    """
    attention = EncoderAttention(
        num_heads=d.num_heads,
        num_kv_heads=d.num_kv_heads,
        head_dim=d.head_dim,
        scale=d.head_dim**-0.5 if scale is None else scale,
        window=window,
        alibi=alibi,
        buckets=buckets,
    )
    q, k, v = qkv
    if rope is not None:
        q, k = g.op(rope, q), g.op(rope, k)
    return g.op(Linear(name), g.op(attention, q, k, v))


class Pooled:
    """How an encoder's text becomes one row: a step wants the row of its last token."""

    def __init__(self, g: Tracer, p: Hyperparameters) -> None:
        self._g = g
        self._kind: Pooling = pooling_of(p) or "mean"
        if self._kind == "rank":
            self._ranks, self._kind = True, _pooling_before_scores(p)
        else:
            self._ranks = False

    def ahead(self, *values: Value) -> tuple[Value, ...]:
        """For the last layer, behind its attention: the one row that is needed of each text, if it is one."""
        if self._kind == "mean":
            return values
        return tuple(self._g.op(self._row, value) for value in values)

    def finish(self, x: Value, *, activation: str = "tanh") -> Value:
        """Of what comes out of the last layer the text's embedding, or its scores.

        activation: between the two matrices that scores are made with.
        """
        g = self._g
        if self._kind == "mean":
            x = g.op(PooledRows("mean"), x)
        g.hidden = self._scores(x, activation) if self._ranks else x
        return g.hidden

    @property
    def _row(self) -> PooledRows | Rows:
        return Rows() if self._kind == "last" else PooledRows("first")

    def _scores(self, x: Value, activation: str) -> Value:
        g = self._g
        if "cls.weight" in g.shapes:
            x = g.op(Activation(activation), g.op(Linear("cls"), x))
            if "cls.norm.weight" in g.shapes:
                x = g.op(LayerNorm("cls.norm", 1e-5), x)
        elif "cls.output.weight" not in g.shapes:
            raise NoScores("tensors cls.weight and cls.output.weight are")
        return g.op(Linear("cls.output"), x) if "cls.output.weight" in g.shapes else x


def _pooling_before_scores(p: Hyperparameters) -> Pooling:
    """ModernBERT's files may say; without it, theirs is the mean."""
    default = POOLING_TYPES.index("mean" if p.architecture == "modern-bert" else "cls")
    kind = POOLING_TYPES[p.integer("classifier.pooling_type", default, minimum=0, maximum=4)]
    if kind not in ("mean", "cls", "last"):
        raise HyperparameterError(
            f"metadata {p.key('classifier.pooling_type')} is none of mean, cls and last"
        )
    return kind
