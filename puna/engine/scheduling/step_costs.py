"""How long a model's steps take, learned while it runs."""

from __future__ import annotations

from bisect import bisect_left
from math import inf, sqrt

_BOUNDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_WEIGHT = 0.2  # of a new observation
_WEIGHT_OF_LESS = 0.5  # of one that is less: things may hold a step up, but nothing speeds it up
_FORGOTTEN_AFTER = 300  # observations of other sizes
_SHORTEST_S = 1e-9  # of a step, on whatever clock


class StepCosts:
    """Seconds by number of tokens: moving averages in buckets, with straight lines between them.

    What has not been seen for long is forgotten, but for the shortest and the longest steps: an average that
    was held up once would else be believed for ever, if it is the reason that no more such steps are made.
    """

    def __init__(self) -> None:
        self._tokens: list[float] = []  # ascending; the average number of tokens of each bucket in use
        self._seconds: list[float] = []
        self._buckets: list[int] = []
        self._seen: list[int] = []  # when, in observations
        self._num_observed = 0

    def observe(self, num_tokens: int, seconds: float) -> None:
        if seconds <= 0:
            return  # it failed at once
        self._num_observed += 1
        seconds = max(seconds, _SHORTEST_S)
        bucket = bisect_left(_BOUNDS, num_tokens)
        index = bisect_left(self._buckets, bucket)
        if index == len(self._buckets) or self._buckets[index] != bucket:
            self._buckets.insert(index, bucket)
            self._tokens.insert(index, num_tokens)
            self._seconds.insert(index, seconds)
            self._seen.insert(index, self._num_observed)
            return
        self._seen[index] = self._num_observed
        before = self._seconds[index]
        # A step that something held up for long says little about the next.
        change = min(seconds / before, 2.0) - 1
        change *= _WEIGHT if change > 0 else _WEIGHT_OF_LESS
        # What slows one size down slows all down: half as much, on a scale on which ups and downs even out.
        factor = sqrt(1 + change)
        self._seconds = [average * factor for average in self._seconds]
        self._seconds[index] = before * (1 + change)
        self._tokens[index] += _WEIGHT * (num_tokens - self._tokens[index])
        self._forget()

    def _forget(self) -> None:
        between = range(1, len(self._seen) - 1)
        oldest = min(between, key=self._seen.__getitem__, default=0)
        if oldest and self._num_observed - self._seen[oldest] > _FORGOTTEN_AFTER:
            for column in (self._tokens, self._seconds, self._buckets, self._seen):
                del column[oldest]

    @property
    def fewest_tokens(self) -> float:
        """Of the steps seen. Of shorter ones it is only known that they take no longer."""
        return self._tokens[0] if self._tokens else inf

    def has_seen(self, num_tokens: int) -> bool:
        """Whether steps of about that size were seen, not too long ago."""
        bucket = bisect_left(_BOUNDS, num_tokens)
        index = bisect_left(self._buckets, bucket)
        return index < len(self._buckets) and self._buckets[index] == bucket

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
