"""Who is at the other end of a connection."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from dataclasses import dataclass

_CREDENTIALS = struct.Struct("3i")  # of Linux: process, user, group


@dataclass(frozen=True, slots=True)
class Peer:
    """Addresses as ASGI has them; a Unix socket's path has no port."""

    address: tuple[str, int] | None
    server: tuple[str, int | None]
    is_unix: bool
    is_trusted: bool
    """On a Unix socket: the same user as this process, or root. Others cannot be told apart."""


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """Reads it from the connection's socket."""
    connection: socket.socket = transport.get_extra_info("socket")
    if connection.family == socket.AF_UNIX:
        return Peer(
            None, (str(connection.getsockname()), None), True, _user_of(connection) in (0, os.geteuid())
        )
    local = connection.getsockname()
    remote = transport.get_extra_info("peername")
    address = (str(remote[0]), int(remote[1])) if remote else None
    return Peer(address, (str(local[0]), int(local[1])), False, True)


def _user_of(connection: socket.socket) -> int | None:
    """None where the system cannot tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    return int(user)
