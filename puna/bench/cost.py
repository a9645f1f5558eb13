"""What a model costs by its tensors: operations per token, bytes per step."""

from __future__ import annotations

import math
from typing import NamedTuple

from puna.gguf import GgufFile

_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"


class Cost(NamedTuple):
    """Of the matrices; attention, norms and sampling are left out."""

    ops_per_token: int
    """A multiplication and an addition for each weight of the layers."""
    ops_per_row: int
    """The same of the output matrix, for each token whose successor is wanted."""
    bytes_per_step: int
    """All matrices: a step reads each of them once, however many tokens it has."""

    def ops(self, num_tokens: int, num_rows: int) -> int:
        return num_tokens * self.ops_per_token + num_rows * self.ops_per_row


def model_cost(file: GgufFile) -> Cost:
    """Of an embedding only single rows are read, unless it is the output matrix, too."""
    output = _OUTPUT if _OUTPUT in file.tensors else _EMBEDDING
    layer_weights = output_weights = num_bytes = 0
    for name, tensor in file.tensors.items():
        if len(tensor.shape) < 2 or (name == _EMBEDDING and name != output):
            continue
        num_bytes += tensor.num_bytes
        if name == output:
            output_weights = math.prod(tensor.shape)
        else:
            layer_weights += math.prod(tensor.shape)
    return Cost(2 * layer_weights, 2 * output_weights, num_bytes)
