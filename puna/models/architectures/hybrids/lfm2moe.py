"""LFM2 with experts in all but the first layers."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.architectures.hybrids.lfm2 import OUTPUT_NORM, lfm2_mixer
from puna.models.blocks import pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, feed_forward = Decoder.read(p), mixture(g, p, scores="sigmoid", normalized=True)
    return pre_norm_decoder(g, d, lfm2_mixer(g, p, d), feed_forward, output_norm=OUTPUT_NORM)
