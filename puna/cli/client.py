"""HTTP client of the commands: JSON and NDJSON over Ollama's API."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import httpx
import msgspec

from puna.cli.errors import CliError, NotRunning, ServerError
from puna.config.host import Host

Json = dict[str, Any]

# Loading a model or generating may take any time, and Ctrl+C ends it; a server that does not even accept
# the connection is not there.
_TIMEOUT = httpx.Timeout(None, connect=10.0)
_HEARTBEAT_TIMEOUT_S = 30.0


class Client:
    """Talks to the server at `host`. Every method raises NotRunning, ServerError or CliError.

    timeout_s: of each answer, for those who would rather have none than wait.
    """

    def __init__(self, host: Host, timeout_s: float | None = None) -> None:
        self.host = host
        try:
            self._http = httpx.Client(
                base_url=host.base_url,
                transport=None if host.socket is None else httpx.HTTPTransport(uds=str(host.socket)),
                timeout=timeout_s or _TIMEOUT,
                # A proxy for the internet cannot reach this machine's own server.
                trust_env=not is_local(host),
                verify=host.scheme == "https",  # without TLS there is no need to load certificates
            )
        except httpx.InvalidURL as error:
            raise CliError(f"OLLAMA_HOST: {error}") from error

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def is_running(self) -> bool:
        """Whether a server answers."""
        try:
            with _reported():
                return self._http.head("/", timeout=_HEARTBEAT_TIMEOUT_S).is_success
        except NotRunning:
            return False

    def get(self, path: str) -> Json:
        """The JSON object at `path`."""
        return self._call("GET", path, None)

    def get_raw(self, path: str) -> bytes:
        """What is at `path`, as it is."""
        return self._request("GET", path, None).content

    def post(self, path: str, body: Json) -> Json:
        """Sends `body`; returns the JSON object that comes back, empty if none does."""
        return self._call("POST", path, body)

    def delete(self, path: str, body: Json) -> Json:
        """DELETE with a JSON body."""
        return self._call("DELETE", path, body)

    def stream(self, path: str, body: Json) -> Generator[Json, None, None]:
        """Posts `body` and yields the lines of the answer. Closing the generator closes the connection."""
        with _reported(), self._http.stream("POST", path, json=body) as response:
            if response.is_error:
                response.read()
                raise _server_error(response)
            for line in response.iter_lines():
                if not line:
                    continue
                message = _decode(line.encode())
                if "error" in message:
                    raise ServerError(str(message["error"]), response.status_code)
                yield message

    def has_blob(self, digest: str) -> bool:
        """Whether the server has the blob already."""
        with _reported():
            response = self._http.head(f"/api/blobs/{digest}")
        if response.status_code == httpx.codes.NOT_FOUND:
            return False
        if response.is_error:
            raise _server_error(response)
        return True

    def upload_blob(self, digest: str, num_bytes: int, chunks: Iterable[bytes]) -> None:
        """Hands the server a blob."""
        with _reported():
            response = self._http.post(
                f"/api/blobs/{digest}", content=chunks, headers={"Content-Length": str(num_bytes)}
            )
        if response.is_error:
            raise _server_error(response)

    def _call(self, method: str, path: str, body: Json | None) -> Json:
        response = self._request(method, path, body)
        return _decode(response.content) if response.content else {}

    def _request(self, method: str, path: str, body: Json | None) -> httpx.Response:
        with _reported():
            response = self._http.request(method, path, json=body)
        if response.is_error:
            raise _server_error(response)
        return response


def is_local(host: Host) -> bool:
    """Whether the server at `host` is one of this machine, so that it could be started here."""
    address = host.address
    return address in ("", "localhost", "0.0.0.0", "::", "::1") or address.startswith("127.")


@contextmanager
def _reported() -> Iterator[None]:
    """Turns what httpx raises into what users are told."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise NotRunning from error
    except httpx.HTTPError as error:
        raise CliError(f"connection to the server lost: {error}") from error


def _decode(data: bytes) -> Json:
    try:
        return msgspec.json.decode(data, type=Json)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CliError(f"the server's answer cannot be understood: {error}") from error


def _server_error(response: httpx.Response) -> ServerError:
    """The `error` text of an answer, or its status line if it has none."""
    try:
        text = msgspec.json.decode(response.content, type=Json)["error"]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        text = response.text.strip() or f"{response.status_code} {response.reason_phrase}"
    return ServerError(str(text), response.status_code)
