"""Fixtures of the recorder's tests."""

from __future__ import annotations

import pytest

from puna.engine.observation.recorder import Recorder
from tests.engine.observation.recording import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(clock: Clock) -> Recorder:
    """Knows one model, "m"."""
    recorder = Recorder(clock)
    recorder.add_model("m")
    return recorder
