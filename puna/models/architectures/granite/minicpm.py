"""MiniCPM 1 to 4: Granite 3, with multipliers of its own where the file names none."""

from __future__ import annotations

from puna.graph import Tracer, Value
from puna.models.architectures.granite.granite import Multipliers, multiplied_decoder
from puna.models.decoder import Stack
from puna.models.hyperparameters import Hyperparameters
from puna.models.rope import FreqFactors


def trace(g: Tracer, p: Hyperparameters, freq_factors: FreqFactors | None) -> Value:
    d = Stack.read(p)
    default = Multipliers(embeddings=12.0, residuals=1.4 / d.num_layers**0.5, logits=256 / d.width)
    return multiplied_decoder(g, p, Multipliers.read(p, default), True, freq_factors)
