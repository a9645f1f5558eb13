"""Llama-Embed-Nemotron: Llama, whose tokens see the whole text."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.architectures.encoders.neo_bert import two_way_decoder
from puna.models.hyperparameters import HyperparameterError, Hyperparameters
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    if p.flag("attention.causal"):
        raise HyperparameterError(f"metadata {p.key('attention.causal')}: tokens that see those before them")
    return two_way_decoder(g, p, "normal", freq_factors)
