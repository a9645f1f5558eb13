"""Who is at the other end of a Unix socket, and until when: the kernel says so, nobody can pretend."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_DESCRIPTOR = struct.Struct("i")
_SO_PEERPIDFD = 77  # since Linux 6.5; the socket module does not have it


class PeerSocket(Protocol):
    """What of a socket the transports of event loops show."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


@dataclass(eq=False, slots=True)
class Client:
    """A process, whatever its connections; or one connection, if its process cannot be seen from here."""

    pid: int | None
    has_ended: bool = False

    def __str__(self) -> str:
        return "a connection" if self.pid is None else f"process {self.pid}"


class Clients:
    """Whoever is connected, or was and still lives.

    on_end: told of each when it has ended.
    """

    def __init__(self, on_end: Callable[[Client], None]) -> None:
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._processes: dict[int, tuple[Client, int]] = {}  # by pid: the client, and a pidfd

    def connected(self, connection: PeerSocket) -> Client:
        pid, pidfd = _identify(connection)
        if pidfd is None:
            return Client(None)
        if pid in self._processes:
            client, known = self._processes[pid]
            if not _has_ended(known):
                os.close(pidfd)
                return client
            self._end(pid)  # the number is another's by now
        client = Client(pid)
        self._processes[pid] = client, pidfd
        self._loop.add_reader(pidfd, self._end, pid)
        return client

    def disconnected(self, client: Client) -> None:
        """A process keeps what it has until it ends."""
        if client.pid is None:
            client.has_ended = True
            self._on_end(client)

    def close(self) -> None:
        """Watches nobody any more."""
        for pid in list(self._processes):
            self._unwatch(pid)

    def _end(self, pid: int) -> None:
        client = self._unwatch(pid)
        client.has_ended = True
        self._on_end(client)

    def _unwatch(self, pid: int) -> Client:
        client, pidfd = self._processes.pop(pid)
        self._loop.remove_reader(pidfd)
        os.close(pidfd)
        return client


def _identify(peer: PeerSocket) -> tuple[int, int | None]:
    """Its pid, and a pidfd if there can be one."""
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(credentials)[0]
    if pid == 0:  # it lives in a namespace that this process does not see
        return pid, None
    try:
        option = peer.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, _DESCRIPTOR.size)
        return pid, int(_DESCRIPTOR.unpack(option)[0])
    except OSError as error:
        # Anything else: the process is gone, and its number may be another's.
        return pid, _open_pidfd(pid) if error.errno == errno.ENOPROTOOPT else None


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
