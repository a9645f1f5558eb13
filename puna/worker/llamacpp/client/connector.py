"""Connects to a server's socket for its worker, which reads what strangers wrote and can make no sockets.

A process of its own that reads nothing, and shares its memory with the worker that it is forked from.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

from puna.worker.cage import CageRules, enter
from puna.worker.child import close_all_but
from puna.worker.llamacpp.socket_directory import (
    SOCKET_NAME,
    SocketDirectory,
    make_socket_directory,
    remove_socket_directory,
)

_WANTED, _CONNECTED, _NOT_YET = b"?", b"+", b"-"
_FAILED = 1


class Connector:
    """The worker's end."""

    def __init__(self, wishes: socket.socket, process: int, directory: Path) -> None:
        """process: a descriptor of it."""
        self.directory = directory
        """Where the server is to listen, on SOCKET_NAME."""
        self._wishes = wishes
        self._process = process
        self._turn = threading.Lock()

    @classmethod
    def start(cls, run: Path) -> Connector:
        """Forks this process, which has no threads yet. The other one ends when this one does, and the
        server's directory in `run` with it. Raises OSError.
        """
        directory = make_socket_directory(run)
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        if (pid := os.fork()) == 0:
            status = _FAILED
            try:
                close_all_but([0, 1, 2, theirs.fileno(), directory.lock])
                _serve(theirs, directory)
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        os.close(directory.lock)
        return cls(ours, os.pidfd_open(pid), directory.path)

    async def connect(self) -> socket.socket:
        """A new connection. Raises OSError if the server does not listen yet, or not any more."""
        return await asyncio.to_thread(self._connect)

    async def ended(self) -> None:
        """Until there is no such process any more."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._process)

    def _connect(self) -> socket.socket:
        with self._turn:
            self._wishes.sendall(_WANTED)
            _, descriptors, _, _ = socket.recv_fds(self._wishes, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not descriptors:
            raise ConnectionRefusedError("llama.cpp's server takes no connection")
        return socket.socket(fileno=descriptors[0])


def _serve(wishes: socket.socket, directory: SocketDirectory) -> None:
    """Until the worker ends."""
    try:
        os.chdir(directory.path)  # a socket's path must not be long
        enter(CageRules(writable=(directory.path.parent,), connects=True))
        taken = None
        while wishes.recv(1):
            taken = taken or _take(directory.path)
            with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
                if taken is not None:
                    connection.connect(f"/proc/self/fd/{taken}")
                    socket.send_fds(wishes, [_CONNECTED], [connection.fileno()])
                    continue
            wishes.sendall(_NOT_YET)
    finally:
        remove_socket_directory(directory.path)


def _take(directory: Path) -> int | None:
    """Opens the server's socket, so that this process alone reaches it: its directory is removed. None: it is
    not there yet.
    """
    try:
        opened = os.open(SOCKET_NAME, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    remove_socket_directory(directory)
    return opened
