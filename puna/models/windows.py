"""Which layers attend to the latest tokens only."""

from __future__ import annotations

from puna.graph import FullAttention, SlidingWindow, StateSpec
from puna.models.hyperparameters import MAX_CONTEXT, Hyperparameters

_PATTERN = "attention.sliding_window_pattern"


def layer_states(p: Hyperparameters, num_layers: int, *, period: int, size: int) -> tuple[StateSpec, ...]:
    """What each layer keeps: every `period`-th all tokens, the others the latest `size`.

    The file may say otherwise: a size (0: no layer has a window), a period, or for each layer whether it has
    a window.
    """
    size = p.integer("attention.sliding_window", size, minimum=0, maximum=MAX_CONTEXT)
    has_window = p.flags(_PATTERN, num_layers)
    if has_window is None:
        period = p.integer(_PATTERN, period)
        has_window = [layer % period != period - 1 for layer in range(num_layers)]
    return tuple(SlidingWindow(size) if size and flag else FullAttention() for flag in has_window)
