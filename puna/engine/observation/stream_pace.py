"""How fast a model's streams go on when no prompt is in their steps."""

from __future__ import annotations

from puna._native import StepCosts

_WEIGHT = 0.2  # of a new observation


class StreamPace:
    """Seconds of a step of streams alone.

    Apart from StepCosts, where what slows down one size slows down all: steps that a long prompt makes longer
    and longer must not count as what the streams are used to.
    """

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs
        self._tokens = 0.0
        self._seconds = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """A step without prompts."""
        if self._tokens == 0:
            self._tokens, self._seconds = num_tokens, seconds
            return
        seconds = min(seconds, 2 * self._seconds)  # what was held up once says little about the next
        self._tokens += _WEIGHT * (num_tokens - self._tokens)
        self._seconds += _WEIGHT * (seconds - self._seconds)

    def estimate(self, num_streams: int) -> float:
        """Seconds of a step that brings so many streams a token each; 0 while nothing is known."""
        costs_s = self._costs.estimate(num_streams) or 0.0
        if self._tokens:
            seen_s = self._costs.estimate(round(self._tokens)) or 0.0
            return self._seconds * (costs_s / seen_s if seen_s else 1.0)
        # If there were prompts in all steps so far, it is less than the least of them.
        fewest = self._costs.fewest_tokens
        return costs_s if num_streams >= fewest else costs_s * (num_streams / fewest) ** 0.5
