"""How long a model's steps take, learned while it runs."""

from __future__ import annotations

from bisect import bisect_left

_BOUNDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_WEIGHT = 0.2  # of a new observation


class StepCosts:
    """Seconds by number of tokens: moving averages in buckets, with straight lines between them."""

    def __init__(self) -> None:
        self._tokens: list[float] = []  # ascending; the average number of tokens of each bucket in use
        self._seconds: list[float] = []
        self._buckets: list[int] = []

    def observe(self, num_tokens: int, seconds: float) -> None:
        bucket = bisect_left(_BOUNDS, num_tokens)
        index = bisect_left(self._buckets, bucket)
        if index == len(self._buckets) or self._buckets[index] != bucket:
            self._buckets.insert(index, bucket)
            self._tokens.insert(index, num_tokens)
            self._seconds.insert(index, seconds)
            return
        # A step that something held up says little about the next.
        seconds = min(seconds, 2 * self._seconds[index])
        self._tokens[index] += _WEIGHT * (num_tokens - self._tokens[index])
        self._seconds[index] += _WEIGHT * (seconds - self._seconds[index])

    def estimate(self, num_tokens: int) -> float | None:
        """Seconds of a step, beyond what was seen in proportion; None while nothing is known."""
        tokens, seconds = self._tokens, self._seconds
        if not tokens:
            return None
        index = bisect_left(tokens, num_tokens)
        if index == 0:
            return seconds[0]
        if index == len(tokens):
            return seconds[-1] * num_tokens / tokens[-1]
        low, high = tokens[index - 1], tokens[index]
        share = (num_tokens - low) / (high - low)
        return seconds[index - 1] + share * (seconds[index] - seconds[index - 1])
