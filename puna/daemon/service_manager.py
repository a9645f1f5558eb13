"""Telling systemd, if that started the daemon, how it goes."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Such as READY=1, as sd_notify(3) says it. Nothing happens if nobody listens."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.setblocking(False)
        sender.sendto(state.encode(), path.replace("@", "\0", 1) if path.startswith("@") else path)
