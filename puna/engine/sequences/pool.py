"""A prompt's hidden states on their way to becoming its embedding."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from puna.gguf.pooling import Pooling


class Pool:
    """Takes hidden states token by token, from the first: so the chunks that they come in do not matter."""

    def __init__(self, pooling: Pooling, num_tokens: int) -> None:
        """num_tokens: of the prompt."""
        self._pooling = pooling
        self._num_tokens = num_tokens
        self._num_pooled = 0  # tokens from the first on whose hidden states it has, or does not want
        self._sum: NDArray[np.float64] | None = None  # for "mean"
        self._state = b""  # for all else: the one that is wanted

    @property
    def num_findable(self) -> int:
        """Tokens, from the first on, whose KV may come from elsewhere: their hidden states are not wanted."""
        return self._num_tokens - 1 if self._pooling == "last" else self._num_pooled

    def wanted(self, begin: int, end: int) -> range:
        """The tokens whose hidden states it wants when [begin, end) are computed."""
        if self._pooling == "mean":
            return range(max(begin, self._num_pooled), end)
        wanted = 0 if self._pooling == "cls" else self._num_tokens - 1
        is_there = begin <= wanted < end and wanted >= self._num_pooled
        return range(wanted, wanted + is_there)

    def add(self, end: int, states: NDArray[np.float32]) -> None:
        """Tokens up to `end` are computed; states [n, hidden_size]: of those that were wanted."""
        if self._pooling == "mean":
            if self._sum is None:
                self._sum = np.zeros(states.shape[1])
            for state in states:
                self._sum += state
        elif len(states):
            self._state = states.tobytes()
        is_complete = self._pooling == "cls" and self._state
        self._num_pooled = self._num_tokens - 1 if is_complete else max(self._num_pooled, end)

    def embedding(self) -> bytes:
        """Of the whole prompt: float32 [hidden_size] in the order of this machine."""
        if self._pooling != "mean":
            return self._state
        assert self._sum is not None, "a prompt that is not computed"
        return (self._sum / self._num_tokens).astype(np.float32).tobytes()
