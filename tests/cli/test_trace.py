"""`puna trace`: the file, and what goes wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

TRACE = {"traceEvents": []}


def test_the_whole_timeline(server, puna, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server.answers["GET", "/debug/trace"] = TRACE
    result = puna("trace")
    assert (result.status, result.err) == (0, "")
    assert "puna-trace.json" in result.out
    assert json.loads((tmp_path / "puna-trace.json").read_text()) == TRACE


def test_the_last_seconds(server, puna, tmp_path: Path):
    server.answers["GET", "/debug/trace?seconds=2.500000"] = TRACE
    assert puna("trace", "-o", str(tmp_path / "x.json"), "--seconds", "2.5").status == 0
    assert json.loads((tmp_path / "x.json").read_text()) == TRACE


def test_errors(server, puna, tmp_path: Path):
    server.answers["GET", "/debug/trace"] = (503, {"error": "the worker does not answer"})
    assert puna("trace").err == "Error: the worker does not answer\n"
    server.answers["GET", "/debug/trace"] = TRACE
    result = puna("trace", "-o", str(tmp_path / "missing" / "x.json"))
    assert (result.status, result.err) == (
        1,
        f"Error: {tmp_path}/missing/x.json: No such file or directory\n",
    )
