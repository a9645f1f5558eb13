"""Each request has an id: its own if that is sane, else a new one."""

from __future__ import annotations

import logging

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from puna.api.observability.identified import IdentifyRequests
from puna.daemon.request_context import REQUEST_ID

pytestmark = pytest.mark.unit


def client(*, logs_access: bool) -> TestClient:
    async def show(_request):
        return PlainTextResponse(REQUEST_ID.get())

    middleware = [Middleware(IdentifyRequests, logs_access=logs_access)]
    return TestClient(Starlette(routes=[Route("/id", show)], middleware=middleware))


def test_a_sane_id_is_taken_over():
    reply = client(logs_access=False).get("/id", headers={"X-Request-Id": "trace-1/a"})
    assert (reply.text, reply.headers["x-request-id"]) == ("trace-1/a", "trace-1/a")


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "\x1b[2J", "{}"])
def test_else_one_is_made(given):
    asked = client(logs_access=False)
    replies = [asked.get("/id", headers={"X-Request-Id": given}) for _ in range(2)]
    ids = [reply.headers["x-request-id"] for reply in replies]
    assert [reply.text for reply in replies] == ids
    assert len(set(ids)) == 2
    assert given not in ids


def test_accesses_are_logged_if_wanted(caplog):
    caplog.set_level(logging.INFO, logger="puna")
    client(logs_access=False).get("/id")
    assert not caplog.records
    client(logs_access=True).get("/nothing?secret")
    (record,) = caplog.records
    assert record.getMessage().startswith("404 GET /nothing in 0.")
    assert record.access["status"] == 404
