"""Tokens of registries: what is signed, what is asked for, and who is never told."""

import asyncio
import base64
import hashlib
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from puna.registry.errors import AccessDenied, SigningKeyError
from puna.registry.remote.authentication import Authorizer
from puna.registry.remote.signing_key import make_key, sign

pytestmark = pytest.mark.unit

BASE = "https://registry.example"
CHALLENGE = (
    f'Bearer realm="{BASE}/v2/token",service="registry",scope="repository:a/b:pull repository:a/b:push"'
)
Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "id_ed25519"
    make_key(path)
    return path


class FakeRegistry:
    """Wants a token for everything; gives it to signed requests, or to unsigned ones."""

    def __init__(self, *, challenge: str = CHALLENGE, anonymous: bool = False) -> None:
        self.challenge, self.anonymous = challenge, anonymous
        self.token_requests: list[httpx.Request] = []
        self.valid = "t0"
        self.reply: bytes | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v2/token":
            return self._give_token(request)
        if request.headers.get("Authorization") == f"Bearer {self.valid}" and self.valid != "t0":
            return httpx.Response(200, text=request.content.decode())
        return httpx.Response(401, headers={"WWW-Authenticate": self.challenge})

    def _give_token(self, request: httpx.Request) -> httpx.Response:
        self.token_requests.append(request)
        if self.anonymous == ("Authorization" in request.headers):
            return httpx.Response(403)
        self.valid = f"t{len(self.token_requests)}"
        name = "access_token" if self.anonymous else "token"
        reply = self.reply or f'{{"{name}": "{self.valid}"}}'.encode()
        return httpx.Response(200, content=as_from_a_network(reply))


async def as_from_a_network(body: bytes) -> AsyncIterator[bytes]:
    yield body


def ask(registry: Answer, key: Path, *urls: str, times: int = 1) -> list[httpx.Response]:
    """Sends requests, all `times` rounds of them at once."""

    async def run() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(registry)) as client:
            authorizer = Authorizer(client, httpx.URL(BASE), key)
            requests = [client.build_request("PUT", url, content=b"x") for url in urls * times]
            responses = await asyncio.gather(*map(authorizer.send, requests))
            for response in responses:
                await response.aread()
            return responses

    return asyncio.run(run())


def check_signature(request: httpx.Request) -> None:
    """As Ollama's registry does it; the public key is unpacked by hand from OpenSSH's wire format."""
    public, signature = map(base64.b64decode, request.headers["Authorization"].split(":"))
    assert public.startswith(b"\0\0\0\x0bssh-ed25519\0\0\0\x20")
    empty = base64.b64encode(hashlib.sha256(b"").hexdigest().encode()).decode()
    data = f"GET,{request.url},{empty}".encode()
    verifier = Ed25519PublicKey.from_public_bytes(public[-32:])
    verifier.verify(signature, data)
    with pytest.raises(InvalidSignature):
        verifier.verify(signature, data + b"x")


def test_a_signed_request_gets_a_token_which_is_used_again(key: Path):
    registry = FakeRegistry()
    responses = ask(registry, key, f"{BASE}/v2/a/b/blobs/1", times=5)
    assert [response.status_code for response in responses] == [200] * 5
    assert [response.text for response in responses] == ["x"] * 5  # the body was sent again
    (request,) = registry.token_requests
    check_signature(request)
    parameters = request.url.params
    assert parameters["service"] == "registry"
    assert parameters.get_list("scope") == ["repository:a/b:pull", "repository:a/b:push"]
    assert parameters["ts"].isdigit()
    assert len(base64.urlsafe_b64decode(parameters["nonce"] + "==")) == 16


def test_registries_that_know_no_keys_give_anonymous_tokens(key: Path):
    registry = FakeRegistry(anonymous=True)
    assert ask(registry, key, f"{BASE}/v2/a/b/manifests/c")[0].status_code == 200
    assert "nonce" not in registry.token_requests[-1].url.params


def test_without_a_key_a_token_is_asked_for_all_the_same(tmp_path: Path):
    assert ask(FakeRegistry(anonymous=True), tmp_path / "none", f"{BASE}/v2/")[0].status_code == 200
    with pytest.raises(SigningKeyError):
        ask(FakeRegistry(), tmp_path / "none", f"{BASE}/v2/")


@pytest.mark.parametrize(
    "challenge",
    [
        'Bearer realm="https://other.example/token",service="registry"',
        'Bearer realm="http://registry.example/token",service="registry"',
        'Bearer realm="https://registry.example:444/token",service="registry"',
        'Bearer realm="https://me:word@registry.example/token",service="registry"',
        'Bearer realm="https://[registry.example/token",service="registry"',
        'Bearer service="registry"',
        'Basic realm="registry"',
        "Bearer",
    ],
)
def test_signatures_go_to_the_registry_alone(key: Path, challenge: str):
    registry = FakeRegistry(challenge=challenge)
    with pytest.raises(AccessDenied, match="unauthorized: "):
        ask(registry, key, f"{BASE}/v2/")
    assert registry.token_requests == []


@pytest.mark.parametrize(
    "reply",
    [b"{}", b"[]", b"\xff", b'{"token": "a\\r\\nb"}', b'{"token": 1}', b'{"token": "wrong"}', b"x" * 10**6],
)
def test_replies_without_a_good_token_are_a_refusal(key: Path, reply: bytes):
    registry = FakeRegistry()
    registry.reply = reply
    with pytest.raises(AccessDenied, match="unauthorized: access denied"):
        ask(registry, key, f"{BASE}/v2/")


def test_other_hosts_get_no_token(key: Path):
    registry = FakeRegistry()
    seen = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "elsewhere.example":
            seen.append(request)
            return httpx.Response(401, headers={"WWW-Authenticate": CHALLENGE})
        return registry(request)

    responses = ask(answer, key, f"{BASE}/v2/", "https://elsewhere.example/blob")
    assert [response.status_code for response in responses] == [200, 401]
    assert [request.headers.get("Authorization") for request in seen] == [None]


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path):
    path = tmp_path / ".ollama" / "id_ed25519"
    make_key(path)
    private, public = path.read_bytes(), path.with_name("id_ed25519.pub").read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert private.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert sign(path, b"").startswith(public.split()[1] + ":")
    make_key(path)
    assert path.read_bytes() == private
    assert sorted(file.name for file in path.parent.iterdir()) == ["id_ed25519", "id_ed25519.pub"]


def test_what_is_no_key_is_said(tmp_path: Path):
    path = tmp_path / "id_ed25519"
    path.write_text("no key")
    with pytest.raises(SigningKeyError, match="is no OpenSSH key"):
        sign(path, b"")
