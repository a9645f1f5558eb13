"""Fixtures of the recorder's tests."""

from __future__ import annotations

import pytest

from puna.engine.observation.recorder import Recorder
from tests.engine.recording import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("puna.engine.observation.recorder.time", clock)
    monkeypatch.setattr("puna.engine.observation.trace.time", clock)
    return clock


@pytest.fixture
def recorder(clock: Clock) -> Recorder:  # noqa: ARG001
    """Knows one model, "m"."""
    recorder = Recorder()
    recorder.add_model("m")
    return recorder
