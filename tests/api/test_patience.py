"""Streams whose first event takes long: they begin without it."""

from __future__ import annotations

import json

import pytest

from puna.api.replying import streaming
from puna.worker.call_client import WorkerDied
from tests.api.fake_runtime import Script

pytestmark = pytest.mark.native

HI = [{"role": "user", "content": "hi"}]
CHAT = {"model": "m", "messages": HI}
MESSAGE = {"model": "m", "messages": HI, "max_tokens": 9, "stream": True}


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    monkeypatch.setattr(streaming, "PATIENCE_S", 0.0)


def test_the_stream_is_the_same_but_for_signs_of_life(client):
    *_, last = client.lines("/api/chat", CHAT)
    assert (last["done"], last["done_reason"]) == (True, "stop")
    frames = client.post("/v1/messages", MESSAGE).text.split("\n\n")
    signs = [frame for frame in frames if frame == ": waiting"]
    assert signs
    assert frames[: len(signs)] == signs
    assert frames[len(signs)].startswith("event: message_start\n")


def test_what_fails_then_ends_the_stream(client, runtime):
    runtime.script = Script(pieces=[], error=WorkerDied("gone"))
    assert client.lines("/api/chat", CHAT) == [{"error": "gone"}]
    response = client.post("/v1/messages", MESSAGE)
    assert response.status_code == 200
    *_, error, end = response.text.split("\n\n")
    assert json.loads(error.removeprefix("event: error\ndata: "))["error"]["message"] == "gone"
    assert end == ""


def test_whole_replies_wait(client, runtime):
    runtime.script = Script(pieces=[], error=WorkerDied("gone"))
    assert client.post("/api/chat", {**CHAT, "stream": False}).status_code == 500
    (loaded,) = client.lines("/api/generate", {"model": "m"})
    assert loaded["done_reason"] == "load"
