"""`puna session`, and what `puna run --session` sends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytestmark = pytest.mark.unit

HOUR_AGO = (datetime.now(UTC) - timedelta(hours=3)).isoformat()


def session(name="work", model="smollm2:135m", tokens=1234, size=28_000_000, **fields):
    saved_at = fields.get("saved_at")
    return {
        "name": name,
        "model": model,
        "tokens": tokens,
        "size": size,
        "pinned": True,
        "saved": saved_at is not None,
        "saved_at": saved_at,
    } | fields


def test_list(server, puna):
    server.answers["GET", "/api/sessions"] = {
        "sessions": [
            session("work", saved_at=HOUR_AGO),
            session("play", model="qwen3:0.6b", tokens=7, size=980, pinned=False, saved_at=HOUR_AGO),
            session("gone", tokens=0, size=0, pinned=False),
        ]
    }
    expected = """\
NAME    MODEL           TOKENS    SIZE     STATE        SAVED
work    smollm2:135m    1234      28 MB    in memory    3 hours ago
play    qwen3:0.6b      7         980 B    on disk      3 hours ago
gone    smollm2:135m    0         0 B      dropped      Never
"""
    assert puna("session", "list").out == puna("session", "ls").out == expected
    assert [line.split()[0] for line in puna("session", "list", "QWEN").out.splitlines()] == ["NAME", "play"]


@pytest.mark.parametrize(("command", "done"), [("save", "saved"), ("load", "loaded")])
def test_save_and_load(server, puna, command, done):
    server.answers["POST", f"/api/sessions/{command}"] = session()
    result = puna("session", command, "smollm2:135m", "work")
    assert result.out == f"{done} session 'work' of smollm2:135m: 1234 tokens, 28 MB\n"
    assert server.bodies(f"/api/sessions/{command}") == [{"model": "smollm2:135m", "name": "work"}]


def test_rm_stops_at_the_first_error(server, puna):
    server.answers["DELETE", "/api/sessions"] = lambda body: (
        (404, {"error": "session 'b' of m not found"}) if body["name"] == "b" else (200, None)
    )
    result = puna("session", "rm", "m", "a", "b", "c")
    assert (result.out, result.status) == ("deleted session 'a'\n", 1)
    assert result.err == "Error: session 'b' of m not found\n"
    assert server.bodies("/api/sessions") == [{"model": "m", "name": "a"}, {"model": "m", "name": "b"}]


def test_what_the_server_refuses_is_shown(server, puna):
    error = "the session was saved with another KV cache type: f16, not q8_0"
    server.answers["POST", "/api/sessions/load"] = (409, {"error": error})
    result = puna("session", "load", "m", "a")
    assert (result.err, result.status) == (f"Error: {error}\n", 1)


@pytest.mark.parametrize("arguments", [("save", "m"), ("load",), ("rm", "m"), ("nonsense",)])
def test_wrong_usage(puna, arguments):
    assert puna("session", *arguments).status == 1


def test_run_names_the_session_with_each_request(server, puna):
    server.answers["POST", "/api/generate"] = [{"response": "Hi", "done": True}]
    assert puna("run", "m", "hello", "--session", "work").status == 0
    [body] = server.bodies("/api/generate")
    assert (body["session"], body["prompt"]) == ("work", "hello")
