"""OLLAMA_HOST: the address of the server, or the path of its Unix socket."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DEFAULT_PORT = 11434


@dataclass(frozen=True, slots=True)
class Host:
    """OLLAMA_HOST, as the server binds it and as the client connects to it."""

    scheme: str = "http"
    address: str = "127.0.0.1"
    """Host name or IP without brackets; empty means every interface."""
    port: int = DEFAULT_PORT
    """0 lets the system choose one."""
    path: str = ""
    socket: Path | None = None
    """Of a Unix socket, absolute, instead of address and port."""

    @property
    def base_url(self) -> str:
        """Where a client connects: an address that only a server can use becomes the loopback one.

        A client of a Unix socket needs a name nevertheless.
        """
        address = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.address, self.address)
        return f"{self.scheme}://{join_host_port(address, self.port)}{self.path}"

    @property
    def network(self) -> str:
        """As messages about listening begin."""
        return "tcp" if self.socket is None else "unix"

    def __str__(self) -> str:
        if self.socket is not None:
            return str(self.socket)
        return join_host_port(self.address, self.port)


def join_host_port(address: str, port: int) -> str:
    """`address:port`, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def parse_host(text: str) -> Host:
    """Parses `[scheme://]host[:port][/path]` or `unix:path`; no error: a bad port is the default."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        return Host(address="localhost", socket=Path(path.removeprefix("//")).expanduser().absolute())
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = ("https", "ollama.com:443") if text == "ollama.com" else ("http", text)
    default_port = {"http": 80, "https": 443}.get(scheme, DEFAULT_PORT) if separator else DEFAULT_PORT
    host_port, slash, path = rest.partition("/")
    address, port = _split_host_port(host_port)
    valid = re.fullmatch(r"\d{1,5}", port, re.ASCII) is not None and int(port) <= 65535
    return Host(scheme, address, int(port) if valid else default_port, (slash + path).rstrip("/"))


def _split_host_port(text: str) -> tuple[str, str]:
    """(address, port), the port empty if there is none; address of an empty text is the loopback one."""
    if match := re.fullmatch(r"\[([^\[\]]*)\](?::(.*))?", text):
        return match[1], match[2] or ""
    if text.count(":") == 1:
        address, _, port = text.partition(":")
        return address, port
    return text.strip("[]") or "127.0.0.1", ""  # a bare IPv6 address has several colons and no port
