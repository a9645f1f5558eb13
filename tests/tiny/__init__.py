"""Tiny random-weight GGUF files of each architecture: one table row each, checked alike everywhere."""

from tests.tiny.alibi import ALIBI
from tests.tiny.dense import DENSE
from tests.tiny.encoders import ENCODERS, RANKERS
from tests.tiny.files import SPECIAL_TOKENS, Quantize, Tiny, byte_level_vocabulary, write_tiny
from tests.tiny.gemmas import GEMMAS
from tests.tiny.hybrids import HYBRIDS
from tests.tiny.layer_norm import LAYER_NORM_MODELS
from tests.tiny.mixtures import MIXTURES
from tests.tiny.windowed import WINDOWED

TINY: dict[str, Tiny] = {**DENSE, **GEMMAS, **LAYER_NORM_MODELS, **MIXTURES, **WINDOWED, **HYBRIDS, **ALIBI}

__all__ = [
    "ENCODERS",
    "RANKERS",
    "SPECIAL_TOKENS",
    "TINY",
    "Quantize",
    "Tiny",
    "byte_level_vocabulary",
    "write_tiny",
]
