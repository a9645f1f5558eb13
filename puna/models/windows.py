"""Which layers attend to the latest tokens only."""

from __future__ import annotations

from puna.models.hyperparameters import MAX_CONTEXT, Hyperparameters

_PATTERN = "attention.sliding_window_pattern"


def layer_windows(
    p: Hyperparameters, num_layers: int, *, period: int, size: int, full_first: bool = False
) -> list[int]:
    """How many of the latest tokens each layer sees: every `period`-th all (0), the others `size`.

    full_first: of each period it is the first layer, not the last.

    The file may say otherwise: a size (0: no layer has a window), a period, or for each layer whether it has
    a window.
    """
    size = p.integer("attention.sliding_window", size, minimum=0, maximum=MAX_CONTEXT)
    has_window = p.flags(_PATTERN, num_layers)
    if has_window is None:
        period = p.integer(_PATTERN, period)
        full = 0 if full_first else period - 1
        has_window = [layer % period != full for layer in range(num_layers)]
    return [size if flag else 0 for flag in has_window]
