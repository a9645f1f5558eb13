"""Which layers have a window: by the architecture, or as the file says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from puna.models.hyperparameters import HyperparameterError, Hyperparameters
from puna.models.windows import layer_windows

pytestmark = pytest.mark.unit


def shown(**metadata: Any) -> str:
    """The windows of four layers, by period 2 and size 9 unless the file says otherwise: - for none."""
    named = {f"g.attention.{key}": value for key, value in metadata.items()}
    p = Hyperparameters({"general.architecture": "g", **named})
    return " ".join(str(window or "-") for window in layer_windows(p, 4, period=2, size=9))


def test_the_last_layer_of_each_period_has_none() -> None:
    assert shown() == "9 - 9 -"
    assert shown(sliding_window_pattern=3, sliding_window=5) == "5 5 - 5"
    assert shown(sliding_window_pattern=1) == "- - - -"


def test_a_size_of_zero_means_none() -> None:
    assert shown(sliding_window=0) == "- - - -"


def test_a_file_may_list_the_layers() -> None:
    assert shown(sliding_window_pattern=np.array([False, True, True, False])) == "- 9 9 -"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([True]), "is an array of 1, not 4 truth values"),
        (np.array([1, 0, 1, 0]), "is an array of 4, not 4 truth values"),
        ("two", "is 'two', not an integer"),
        (0, "is 0, not between 1 and"),
    ],
)
def test_bad_patterns_are_named(value: object, text: str) -> None:
    with pytest.raises(HyperparameterError, match=f"g.attention.sliding_window_pattern {text}"):
        shown(sliding_window_pattern=value)
