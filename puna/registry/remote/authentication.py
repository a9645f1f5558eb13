"""Answering a registry that wants to know who asks: a token for a signature, or for nothing.

Ollama's registry gives tokens to requests that are signed with the key of `signing_key`; Docker's kin gives
anonymous ones to everybody. A token is sent to the registry that it is of and to nobody else, and is in no
log.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import secrets
import time
from pathlib import Path
from urllib.parse import urlencode

import httpx
import msgspec

from puna.registry.errors import AccessDenied, RegistryError, SigningKeyError
from puna.registry.remote.bodies import BodyTooLong, read_body
from puna.registry.remote.signing_key import sign

_MAX_REPLY_BYTES = 256 << 10
_MAX_CHALLENGE_CHARS = 8 << 10
_MAX_SCOPES = 64
_PARAMETER = re.compile(r'([a-z_]+)="([^"]*)"')
_TOKEN = re.compile(r"[\x21-\x7e]+")
_EMPTY_SHA256 = base64.b64encode(hashlib.sha256().hexdigest().encode()).decode()


class _TokenReply(msgspec.Struct):
    """Registries name it one way or the other."""

    token: str = ""
    access_token: str = ""


class Authorizer:
    """Sends requests to one registry with a token, once it wants one. Safe to use from many tasks.

    base: the registry's URL, of which scheme and host count. key: path of the key to sign with.
    """

    def __init__(self, client: httpx.AsyncClient, base: httpx.URL, key: Path) -> None:
        self._client = client
        self._origin = _origin(base)
        self._key = key
        self._token = ""
        self._asking = asyncio.Lock()

    async def send(self, request: httpx.Request) -> httpx.Response:
        """The response, unread and the caller's to close; redirects are not followed.

        A request to another host than the registry's goes as it is. The body, if any, may be asked for twice:
        after a 401 it is sent once more, with a new token.
        Raises AccessDenied, SigningKeyError, httpx.HTTPError, TimeoutError.
        """
        if _origin(request.url) != self._origin:
            return await self._client.send(request, stream=True, follow_redirects=False)
        token = self._token
        response = await self._send_with(request, token)
        if response.status_code != httpx.codes.UNAUTHORIZED:
            return response
        await response.aclose()
        async with self._asking:  # one asks for all that were refused with the same token
            if self._token == token:
                self._token = await self._fetch_token(response.headers)
        response = await self._send_with(request, self._token)
        if response.status_code == httpx.codes.UNAUTHORIZED:
            await response.aclose()
            raise AccessDenied
        return response

    async def _send_with(self, request: httpx.Request, token: str) -> httpx.Response:
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        return await self._client.send(request, stream=True, follow_redirects=False)

    async def _fetch_token(self, refusal: httpx.Headers) -> str:
        realm, wanted = _challenge(refusal)
        if _origin(realm) != self._origin or realm.userinfo:
            # Whoever answers for the registry could have our signature sent to another one.
            raise AccessDenied(f"the registry asks to sign in at another host, {realm.host}")
        nonce = base64.urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()
        signed = _with_query(realm, [*wanted, ("ts", str(int(time.time()))), ("nonce", nonce)])
        token: str | None = None
        problem: RegistryError = AccessDenied()
        try:
            signature = await asyncio.to_thread(sign, self._key, f"GET,{signed},{_EMPTY_SHA256}".encode())
            token = await self._ask_for_token(signed, {"Authorization": signature})
        except SigningKeyError as error:
            problem = error
        # Registries that know no keys refuse them, and may give a token to one who shows none.
        token = token or await self._ask_for_token(_with_query(realm, wanted), {})
        if token is None:
            raise problem
        return token

    async def _ask_for_token(self, url: httpx.URL, headers: dict[str, str]) -> str | None:
        request = self._client.build_request("GET", url, headers={"Accept-Encoding": "identity"} | headers)
        response = await self._client.send(request, stream=True, follow_redirects=False)
        try:
            if response.status_code != httpx.codes.OK:
                return None
            reply = msgspec.json.decode(await read_body(response, _MAX_REPLY_BYTES), type=_TokenReply)
        except (msgspec.DecodeError, UnicodeDecodeError, BodyTooLong):
            return None
        finally:
            await response.aclose()
        token = reply.token or reply.access_token
        return token if _TOKEN.fullmatch(token) else None


def _challenge(headers: httpx.Headers) -> tuple[httpx.URL, list[tuple[str, str]]]:
    """Where to ask for a token, and for what. Raises AccessDenied if the registry offers none."""
    for header in headers.get_list("www-authenticate"):
        scheme, _, rest = header[:_MAX_CHALLENGE_CHARS].partition(" ")
        parameters = dict(_PARAMETER.findall(rest))
        if scheme.lower() != "bearer" or not parameters.get("realm"):
            continue
        try:
            realm = httpx.URL(parameters["realm"])
        except httpx.InvalidURL as error:
            raise AccessDenied("the registry's address to sign in at is none") from error
        service = [("service", parameters["service"])] if "service" in parameters else []
        scopes = parameters.get("scope", "").split()[:_MAX_SCOPES]
        return realm, service + [("scope", scope) for scope in scopes]
    raise AccessDenied


def _with_query(url: httpx.URL, parameters: list[tuple[str, str]]) -> httpx.URL:
    query = "&".join(filter(None, (url.query.decode(), urlencode(sorted(parameters)))))
    return url.copy_with(query=query.encode(), fragment=None)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    default = {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host.lower(), url.port or default
