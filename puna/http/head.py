"""The head of a request: its target and its headers."""

from __future__ import annotations

from urllib.parse import unquote

import httptools
from starlette.types import Scope

from puna.http.limits import Limits
from puna.http.peer import Peer

_AROUND_HEADER = len(": \r\n")


class Head:
    """As far as it has come."""

    def __init__(self) -> None:
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.num_fed = 0
        """Bytes of the data that held nothing else."""
        self._num_bytes = 0  # of the target and of complete headers

    def add_target(self, part: bytes) -> None:
        self.target += part
        self._num_bytes += len(part)

    def add_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))
        self._num_bytes += len(name) + len(value) + _AROUND_HEADER

    def is_too_large(self, limits: Limits) -> bool:
        num_bytes = max(self._num_bytes, self.num_fed)
        return num_bytes > limits.head_bytes or len(self.headers) > limits.num_headers

    def scope(self, parser: httptools.HttpRequestParser, peer: Peer) -> Scope:
        """ASGI's. Raises HttpParserError, ValueError for a target that is none."""
        url = httptools.parse_url(self.target)
        raw_path = url.path or b"/"
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": parser.get_http_version(),
            "method": parser.get_method().decode("ascii"),
            "scheme": "http",
            "path": unquote(raw_path.decode("ascii")),
            "raw_path": raw_path,
            "query_string": url.query or b"",
            "root_path": "",
            "headers": self.headers,
            "client": peer.address,
            "server": peer.server,
        }

    def without_upgrade(self, method: bytes) -> bytes:
        """As it would have been sent by who asks for no other protocol."""
        kept = [(name, value) for name, value in self.headers if name not in (b"upgrade", b"connection")]
        lines = b"".join(b"%b: %b\r\n" % header for header in kept)
        return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, self.target, lines)
