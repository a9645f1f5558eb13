"""What a model costs by its tensors: operations per token, bytes per step."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from puna.gguf import GgufFile

_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"


class Cost(NamedTuple):
    """Of the matrices; attention, recurrent layers, norms and sampling are left out."""

    ops_per_token: int
    """A multiplication and an addition for each weight of the layers; of experts, for those of a token."""
    ops_per_row: int
    """The same of the output matrix, for each token whose successor is wanted."""
    step_bytes: int
    """Matrices that a step reads once, however many tokens it has."""
    expert_bytes: int
    """Those of all experts, of which a step reads what its tokens choose."""
    expert_share: float
    """Of the experts, those that a token chooses."""

    def ops(self, num_tokens: int, num_rows: int) -> int:
        return num_tokens * self.ops_per_token + num_rows * self.ops_per_row

    def bytes_read(self, num_tokens: int) -> float:
        """By a step; as if tokens chose their experts by chance."""
        return self.step_bytes + self.expert_bytes * (1 - (1 - self.expert_share) ** num_tokens)


def model_cost(file: GgufFile) -> Cost:
    """Of an embedding only single rows are read, unless it is the output matrix, too."""
    output = _OUTPUT if _OUTPUT in file.tensors else _EMBEDDING
    layer_weights = expert_weights = output_weights = step_bytes = expert_bytes = 0
    for name, tensor in file.tensors.items():
        if len(tensor.shape) < 2 or (name == _EMBEDDING and name != output):
            continue
        num_weights = math.prod(tensor.shape)
        if "_exps." in name:
            expert_weights += num_weights
            expert_bytes += tensor.num_bytes
            continue
        step_bytes += tensor.num_bytes
        if name == output:
            output_weights = num_weights
        else:
            layer_weights += num_weights
    share = _expert_share(file) if expert_weights else 0.0
    per_token = layer_weights + round(share * expert_weights)
    return Cost(2 * per_token, 2 * output_weights, step_bytes, expert_bytes, share)


def _expert_share(file: GgufFile) -> float:
    architecture = file.metadata["general.architecture"]
    used, count = (file.metadata[f"{architecture}.expert{key}_count"] for key in ("_used", ""))
    return float(np.max(used) / count)  # some have a number for each layer
