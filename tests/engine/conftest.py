"""Fixtures of the recorder's tests."""

from __future__ import annotations

import pytest

from puna.engine.recorder import Recorder
from tests.engine.recording import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("puna.engine.recorder.time", clock)
    monkeypatch.setattr("puna.engine.trace.time", clock)
    return clock


@pytest.fixture
def recorder(clock: Clock) -> Recorder:  # noqa: ARG001
    """Knows one model, "m"."""
    recorder = Recorder()
    recorder.add_model("m")
    return recorder
