"""Speaking to one registry: reading manifests, and blobs in ranges; asking for whatever uploads need.

What it says is not believed: lengths are bounded, redirects counted, and a redirect neither leads from https
to http nor takes the token along.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import httpcore
import httpx

import puna
from puna.registry.digest import Digest
from puna.registry.errors import RemoteError
from puna.registry.remote.authentication import Authorizer
from puna.registry.remote.bodies import BodyTooLong, read_body
from puna.registry.remote.content_range import parse_content_range
from puna.registry.remote.early_answers import listen_while_sending

STALL_S = 30.0
"""A registry that sends nothing for so long is asked again."""

_ANSWER_S = 120.0
"""An answer may take to begin, asking for a token included."""
_MAX_REDIRECTS = 10
_MAX_ERROR_BYTES = 4 << 10
_MAX_ERROR_CHARS = 200
_MAX_CONNECTIONS = 64
_REDIRECTS = (301, 302, 303, 307, 308)
_USER_AGENT = f"puna/{puna.__version__} ({platform.machine()} {platform.system().lower()})"
_READ_BYTES = 1 << 20
# Its own 64 KiB at a time take as long as all else that is done with them together.
httpcore.AsyncHTTP11Connection.READ_NUM_BYTES = _READ_BYTES
# As Go has it, and so Ollama: a proxy cannot reach what this machine calls so.
_UNPROXIED = dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]"))


class Body(NamedTuple):
    """The bytes of a blob from `start` on, as they arrive."""

    start: int
    announced: str
    """How many bytes they are said to be, "" if it is not said."""
    pieces: AsyncGenerator[bytes, None]


async def connect(base: httpx.URL, key: Path, stall_s: float = STALL_S) -> RegistryClient:
    """A client of the registry at `base`; reading the system's certificates for it takes a while.

    Raises RemoteError for proxies and certificates of the environment that cannot be used.
    """
    try:
        return await asyncio.to_thread(RegistryClient, base, key, stall_s)
    except (ImportError, OSError, ValueError, httpx.InvalidURL) as error:
        raise RemoteError(f"the proxies or certificates of the environment: {_shown(str(error))}") from error


class RegistryClient:
    """Use it in an `async with` block. base: what `/v2/...` goes behind. key: path of the key that requests
    are signed with.

    Proxies are those of the environment. Everything raises RemoteError, AccessDenied or SigningKeyError.
    """

    def __init__(self, base: httpx.URL, key: Path, stall_s: float) -> None:
        self.base = base
        self._stall_s = stall_s
        self._http = httpx.AsyncClient(
            headers={"User-Agent": _USER_AGENT, "Accept-Encoding": "identity"},
            timeout=httpx.Timeout(stall_s, pool=None),
            limits=httpx.Limits(max_connections=_MAX_CONNECTIONS, max_keepalive_connections=_MAX_CONNECTIONS),
            mounts=_UNPROXIED,
        )
        listen_while_sending(self._http)
        self._authorizer = Authorizer(self._http, base, key)

    async def __aenter__(self) -> RegistryClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def read_manifest(
        self, repository: str, reference: str, accept: str, max_bytes: int
    ) -> tuple[bytes, str]:
        """The bytes of what `reference`, a tag or a digest, names, and their media type."""
        url = self.url(f"{repository}/manifests/{reference}")
        async with self._get(url, {"Accept": accept}) as response:
            with _translated(url):
                body = await read_body(response, max_bytes)
            return body, response.headers.get("content-type", "").partition(";")[0].strip()

    async def locate(self, repository: str, digest: Digest) -> httpx.URL:
        """Where the blob can be read: at the registry, or where it first redirects to another host."""
        url = self.url(f"{repository}/blobs/{digest}")
        with _translated(url):
            for _ in range(_MAX_REDIRECTS):
                response = await self._send(url, {"Range": "bytes=0-0"})
                try:
                    target = _target(response)
                    if target is None:
                        await self._check(response)
                        return url
                finally:
                    await response.aclose()
                if target.host != url.host or target.port != url.port:
                    return target
                url = target
        raise RemoteError("too many redirects")

    @asynccontextmanager
    async def read_range(self, url: httpx.URL, start: int, end: int, num_bytes: int) -> AsyncIterator[Body]:
        """Bytes from `start` on of a blob of `num_bytes` at `url`, which come from 0 on instead from one who
        knows no ranges; more than was asked for may follow.
        """
        headers = {} if (start, end) == (0, num_bytes) else {"Range": f"bytes={start}-{end - 1}"}
        async with self._get(url, headers) as response:
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise RemoteError("the blob comes in an encoding that nobody asked for")
            begin = 0
            if response.status_code == httpx.codes.PARTIAL_CONTENT:
                begin, total = parse_content_range(response.headers.get("content-range", ""))
                if begin != start or total not in (num_bytes, None):
                    raise RemoteError(
                        f"asked for bytes from {start} on of {num_bytes}, got {begin} of {total}"
                    )
            yield Body(begin, response.headers.get("content-length", ""), _pieces(response))

    @asynccontextmanager
    async def _get(self, url: httpx.URL, headers: dict[str, str]) -> AsyncIterator[httpx.Response]:
        for _ in range(_MAX_REDIRECTS):
            with _translated(url):
                response = await self._send(url, headers)
            try:
                with _translated(url):
                    target = _target(response)
                    if target is None:
                        await self._check(response)
                if target is None:
                    yield response
                    return
            finally:
                await response.aclose()
            url = target
        raise RemoteError("too many redirects")

    async def ask(
        self,
        method: str,
        url: httpx.URL,
        headers: dict[str, str] | None = None,
        content: bytes | AsyncIterable[bytes] | None = None,
        *,
        patience_s: float | None = None,
    ) -> httpx.Response:
        """The answer, which is a success or redirects; its body is not wanted.

        content: may be asked for twice. patience_s: how long the answer may take once all is sent.
        """
        timeout = self._http.timeout if patience_s is None else httpx.Timeout(self._stall_s, read=patience_s)
        with _translated(url):
            request = self._http.build_request(method, url, headers=headers, content=content, timeout=timeout)
            response = await self._authorizer.send(request)
            try:
                if not response.is_success:
                    location_of(response) if response.is_redirect else await self._check(response)
                with suppress(BodyTooLong):  # what is read to its end can be used for the next request
                    await read_body(response, _MAX_ERROR_BYTES)
            finally:
                await response.aclose()
        return response

    def url(self, path: str) -> httpx.URL:
        """Of what is at `/v2/<path>`."""
        return self.base.copy_with(path=f"{self.base.path.rstrip('/')}/v2/{path}")

    async def _send(self, url: httpx.URL, headers: dict[str, str]) -> httpx.Response:
        async with asyncio.timeout(_ANSWER_S):  # a byte now and then is no answer
            return await self._authorizer.send(self._http.build_request("GET", url, headers=headers))

    async def _check(self, response: httpx.Response) -> None:
        """Raises RemoteError for a status that is no success."""
        status = response.status_code
        if status in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT):
            return
        if status == httpx.codes.NOT_FOUND:
            raise RemoteError("file does not exist", status)
        text = response.reason_phrase
        if response.url.host == self.base.host:  # what others say might not be meant for who asks
            with suppress(BodyTooLong):
                text = (await read_body(response, _MAX_ERROR_BYTES)).decode(errors="replace").strip() or text
        raise RemoteError(f"{status}: {_shown(text)}", status)


def location_of(response: httpx.Response, header: str = "Location") -> httpx.URL:
    """The address that a header names. Raises RemoteError if it is none, or if it is less safe."""
    try:
        target = response.url.join(response.headers.get(header, ""))
    except httpx.InvalidURL:
        raise RemoteError("redirected to nowhere") from None
    if target.scheme not in ("http", "https") or not target.host:
        raise RemoteError("redirected to nowhere")
    if response.url.scheme == "https" and target.scheme != "https":
        raise RemoteError(f"redirected from https to http, to {_shown(target.host)}")
    return target


def _target(response: httpx.Response) -> httpx.URL | None:
    """Where the response redirects to, if it does. Raises RemoteError."""
    if response.status_code not in _REDIRECTS:
        return None
    target = location_of(response)
    if target == response.url:
        raise RemoteError("redirected to nowhere")
    return target


async def _pieces(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    with _translated(response.url):
        async for piece in response.aiter_raw():
            yield piece


@contextmanager
def _translated(url: httpx.URL) -> Iterator[None]:
    """Turns what HTTP clients raise into RemoteError, with a text for those who asked."""
    try:
        yield
    except httpx.ConnectError as error:
        if "WRONG_VERSION_NUMBER" in str(error):  # OpenSSL, of an answer that is no TLS
            raise RemoteError(
                f"cannot connect to {url.host}: it does not speak TLS; --insecure does without"
            ) from error
        raise RemoteError(f"cannot connect to {url.host}: {_shown(str(error))}") from error
    except BodyTooLong as error:
        raise RemoteError(str(error)) from error
    except (httpx.TimeoutException, TimeoutError) as error:
        raise RemoteError(f"{url.host} does not answer") from error
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as error:
        raise RemoteError(f"{url.host}: {_shown(str(error) or type(error).__name__)}") from error


def _shown(text: str) -> str:
    printable = "".join(char if char.isprintable() else " " for char in text)
    return printable if len(printable) <= _MAX_ERROR_CHARS else printable[:_MAX_ERROR_CHARS] + "..."
