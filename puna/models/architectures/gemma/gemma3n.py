"""The text part of Gemma 3n: a residual stream of several parts (AltUp), a low-rank path beside attention
(Laurel), embeddings of each layer's own, and later layers that attend to what earlier ones keep.
"""

from __future__ import annotations

import math

from puna.graph import Tracer, Value
from puna.graph.ops import (
    Add,
    AltUpAddToOthers,
    AltUpCorrect,
    AltUpPredict,
    Columns,
    Concat,
    Embed,
    GaussianTopK,
    Glu,
    HeadLinear,
    Linear,
    MatchMagnitude,
    MulVector,
    Rope,
    Rows,
    Scale,
    Softcap,
)
from puna.models.architectures.gemma.per_layer_embeddings import PerLayerEmbeddings
from puna.models.architectures.gemma.shared_kv import keeping_layers, kept_by, normed_attention
from puna.models.blocks import logits, norm
from puna.models.decoder import Stack
from puna.models.heads import Heads, layer_heads
from puna.models.hyperparameters import HyperparameterError, Hyperparameters
from puna.models.rope import FreqFactors, rope, unscaled_rope
from puna.models.windows import layer_windows

_KEEPING = 20  # layers that keep keys and values, of all sizes
_SPARSE = 10  # layers that do without all but a twentieth of their hidden values
_DEVIATIONS = 1.6448533535003662  # beyond which a twentieth of a normal distribution lies
_MAX_STREAMS = 16


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    model = _Gemma3n(g, p)
    d = model.d
    x = g.op(Scale(math.sqrt(d.width)), g.op(Embed("token_embd")))
    model.own = PerLayerEmbeddings(g, d, x)
    streams = model.spread(x)
    for layer in range(d.num_layers):
        streams = model.layer(layer, streams)
    y = logits(g, norm(g, d, model.merged(streams), "output_norm"))
    num_tokens = g.shapes.matrix("per_layer_token_embd.weight")[1]
    if num_tokens < y.width:  # tokens of images and sounds, which have no embeddings of layers' own
        y = g.op(Columns(0, num_tokens, y.width), y)
    softcap = p.soft_cap("final_logit_softcapping", 30.0)
    return g.op(Softcap(softcap), y) if softcap else y


class _Gemma3n:
    """What its layers have in common, while they are traced."""

    own: PerLayerEmbeddings

    def __init__(self, g: Tracer, p: Hyperparameters) -> None:
        self.g = g
        self.d = Stack.read(p)
        layers = self.d.num_layers
        self.num_streams = p.integer("altup.num_inputs", 4, minimum=2, maximum=_MAX_STREAMS)
        if p.integer("altup.active_idx", 0, minimum=0):
            raise HyperparameterError(f"metadata {p.key('altup.active_idx')} is not 0")
        self.heads = layer_heads(p, layer_windows(p, layers, period=5, size=512))
        self.num_keeping = keeping_layers(p, layers, num_sharing=max(0, layers - _KEEPING))
        self.deviations = p.numbers("activation_sparsity_scale", layers) or [
            _DEVIATIONS if layer < _SPARSE else -math.inf for layer in range(layers)
        ]
        base = p.number("rope.freq_base_swa", p.number("rope.freq_base_local", 10000.0))
        head_dim = self.heads[0].head_dim
        self._full = rope(p, "neox", head_dim, None, base=1e6)
        self._windowed = unscaled_rope(p, "neox", head_dim, base)

    def rotation(self, heads: Heads) -> Rope:
        return self._windowed if heads.window else self._full

    def first(self, streams: Value) -> Value:
        return self.g.op(Columns(0, self.d.width, streams.width), streams)

    def spread(self, x: Value) -> Value:
        """x, and what a matrix each makes of it, as large."""
        g, copies = self.g, x
        for _ in range(self.num_streams - 2):
            copies = g.op(Concat(1), copies, x)
        others = g.op(HeadLinear("altup_proj", self.num_streams - 1), copies)
        return g.op(Concat(1), x, g.op(MatchMagnitude(), others, x))

    def merged(self, streams: Value) -> Value:
        """The mean of the first stream and what a matrix each makes of the others, as large."""
        g, width = self.g, self.d.width
        first = mean = self.first(streams)
        others = g.op(Columns(width, streams.width - width, streams.width), streams)
        others = g.op(HeadLinear("altup_unembd_proj", self.num_streams - 1), others)
        others = g.op(MatchMagnitude(), others, first)
        for begin in range(0, others.width, width):
            mean = g.op(Add(), mean, g.op(Columns(begin, width, others.width), others))
        return g.op(Scale(1 / self.num_streams), mean)

    def layer(self, layer: int, streams: Value) -> Value:
        g, d, block = self.g, self.d, f"blk.{layer}"
        weights = self._weights(block, "predict", self.first(streams))
        predicted = g.op(AltUpPredict(self.num_streams), streams, weights)
        active = self.first(predicted)
        normed = rows = norm(g, d, active, f"{block}.attn_norm")
        if layer == self.num_keeping - 1:  # what follows keeps nothing: only rows that are asked for need it
            rows, predicted, active = (g.op(Rows(), value) for value in (normed, predicted, active))
            self.own.narrow()
        heads = self.heads[layer]
        keeper = kept_by(layer, self.num_keeping, heads.window)
        attended = normed_attention(g, d, heads, self.rotation(heads), layer, normed, rows, keeper=keeper)
        attended = norm(g, d, attended, f"{block}.post_attention_norm")
        x = g.op(Add(), g.op(Add(), attended, active), self._laurel(block, rows))
        x = g.op(Scale(math.sqrt(0.5)), x)
        x = g.op(Add(), x, self._feed_forward(layer, norm(g, d, x, f"{block}.ffn_norm")))
        corrected = g.op(AltUpCorrect(), predicted, x, self._weights(block, "correct", x))
        scaled = g.op(MulVector(f"{block}.altup_correct_scale.weight"), self.first(corrected))
        return g.op(AltUpAddToOthers(), corrected, self.own.gated(layer, scaled))

    def _weights(self, block: str, kind: str, x: Value) -> Value:
        """By which streams are predicted, or corrected."""
        g = self.g
        routed = g.op(Linear(f"{block}.altup_router"), norm(g, self.d, x, f"{block}.altup_router_norm"))
        modalities = g.op(Softcap(1.0), g.op(Scale(1 / self.d.width), routed))
        return g.op(Linear(f"{block}.altup_{kind}_coef"), modalities)

    def _laurel(self, block: str, x: Value) -> Value:
        g = self.g
        y = g.op(Linear(f"{block}.laurel_r"), g.op(Linear(f"{block}.laurel_l"), x))
        return g.op(Add(), x, norm(g, self.d, y, f"{block}.laurel_post_norm"))

    def _feed_forward(self, layer: int, x: Value) -> Value:
        g, block = self.g, f"blk.{layer}"
        gate, up = g.op(Linear(f"{block}.ffn_gate"), x), g.op(Linear(f"{block}.ffn_up"), x)
        if math.isfinite(self.deviations[layer]):  # where all values stay, files have minus infinity
            gate = g.op(GaussianTopK(self.deviations[layer]), gate)
        y = g.op(Linear(f"{block}.ffn_down"), g.op(Glu("gelu"), gate, up))
        return norm(g, self.d, y, f"{block}.post_ffw_norm")
