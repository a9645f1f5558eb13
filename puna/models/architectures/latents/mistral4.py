"""Mistral 4: latents instead of keys and values, experts; queries grow with their positions."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.architectures.latents.absorbed import Latents, latent_attention
from puna.models.blocks import pre_norm_decoder
from puna.models.decoder import Decoder
from puna.models.hyperparameters import Hyperparameters
from puna.models.mixtures import mixture
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, _: FreqFactors | None) -> Value:
    d, latents = Decoder.read(p), Latents.read(p, stretches=True)

    def attention(layer: int, x: Value) -> Value:
        return latent_attention(g, d, latents, layer, x)

    return pre_norm_decoder(g, d, attention, mixture(g, p, scores="softmax", normalized=False))
