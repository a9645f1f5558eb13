"""Web pages that do not say where they come from, and the users of a Unix socket."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from puna.http.peer import Peer

pytestmark = pytest.mark.native


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("path", ["/", "/api/tags", "/v1/models", "/metrics", "/nothing"])
def test_what_a_page_of_another_site_embeds_is_an_empty_403(client, site, path):
    response = client.get(path, **{"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"})
    assert (response.status_code, response.content) == (403, b"")


def test_a_form_or_a_link_of_another_site_reaches_only_the_start_page(client):
    navigation = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", **navigation).status_code == 200
    assert client.get("/api/tags", **navigation).status_code == 403
    assert client.request("POST", "/api/show", {"model": "m"}, **navigation).status_code == 403


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_the_user_and_own_pages_are_let_in(client, site):
    assert client.get("/api/tags", **{"Sec-Fetch-Site": site}).status_code == 200


def test_where_an_origin_is_sent_it_decides(client):
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    assert client.get("/api/tags", Origin="http://localhost:3000", **headers).status_code == 200
    assert client.get("/api/tags", Origin="https://evil.example", **headers).status_code == 403


def test_an_allowed_page_of_the_internet_may_ask_for_the_private_network(client):
    asked = {"Access-Control-Request-Private-Network": "true"}
    allowed = client.request("OPTIONS", "/api/chat", Origin="http://localhost:3000", **asked)
    assert allowed.headers["access-control-allow-private-network"] == "true"
    refused = client.request("OPTIONS", "/api/chat", Origin="https://evil.example", **asked)
    assert (refused.status_code, "access-control-allow-private-network" in refused.headers) == (403, False)


@pytest.mark.parametrize(("is_trusted", "status"), [(True, 200), (False, 403)])
def test_on_a_unix_socket_the_user_counts_and_nothing_else(client, is_trusted, status):
    peer = Peer(None, ("/run/puna.sock", None), is_unix=True, is_trusted=is_trusted)

    async def with_peer(scope, receive, send):
        await client.app(
            {**scope, "extensions": {"puna": {"peer": peer, "is_crowded": False}}}, receive, send
        )

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(with_peer), base_url="http://x") as http:
            return await http.get(
                "/api/tags", headers={"Host": "evil.example", "Origin": "https://evil.example"}
            )

    assert asyncio.run(ask()).status_code == status


@pytest.mark.parametrize("path", ["/api/tags", "/v1/models"])
def test_too_many_requests_are_told_in_the_face_s_shape_when_to_come_again(client, path):
    peer = Peer(None, ("127.0.0.1", 1), is_unix=False, is_trusted=True)

    async def crowded(scope, receive, send):
        await client.app({**scope, "extensions": {"puna": {"peer": peer, "is_crowded": True}}}, receive, send)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(crowded), base_url="http://localhost"
        ) as http:
            return await http.get(path)

    response = asyncio.run(ask())
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    error = response.json()["error"]
    assert "server busy" in (error["message"] if path.startswith("/v1") else error)
