"""Names of quantizations and parameter counts, as Ollama writes them into a model's config."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from puna.config.sizes import human_count
from puna.gguf.tensor_info import TensorInfo

# general.file_type, as llama.cpp numbers it; the gaps are formats that were removed.
_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1",
    10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M",
    16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S",
    22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M",
    28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0",
    38: "MXFP4_MOE",
}  # fmt: skip

FILE_TYPES = {name: number for number, name in _NAMES.items()}
"""general.file_type by name."""


def quantization_name(metadata: Mapping[str, Any], tensors: Mapping[str, TensorInfo]) -> str:
    """Such as "Q4_K_M": what the file says of itself, else the type that most of its weights have."""
    file_type = metadata.get("general.file_type")
    if isinstance(file_type, int) and file_type in _NAMES:
        return _NAMES[file_type]
    weights: Counter[str] = Counter()
    for tensor in tensors.values():
        weights[tensor.type] += math.prod(tensor.shape)
    # Not most_common(), which imports a module: caged processes cannot.
    return max(weights, key=lambda name: weights[name], default="unknown")


def parameter_size(tensors: Mapping[str, TensorInfo]) -> str:
    """Such as "134.52M", "7.6B", "70B"."""
    return human_count(sum(math.prod(tensor.shape) for tensor in tensors.values()))
