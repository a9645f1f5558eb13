"""What a client may take of the server's memory, descriptors and time."""

from __future__ import annotations

import resource
from contextlib import suppress
from dataclasses import dataclass

_RESERVED_DESCRIPTORS = 192
"""For files, for children and their channels, and for what libraries open."""
_MAX_CONNECTIONS = 4096
"""However many descriptors there are: each connection may hold some 100 KiB before its request is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    target_bytes: int = 16 << 10
    """Of a request line's target; beyond: status 414."""
    head_bytes: int = 64 << 10
    """Request line and header lines together, and as much again for trailers; beyond: 431."""
    num_headers: int = 128
    num_pipelined: int = 16
    """Requests of one connection that are read before the first of them is answered."""
    head_s: float = 30.0
    """From a connection's first byte, or a later request's, to the end of the head; then 408."""
    body_s: float = 30.0
    """A body that is waited for must grow by `body_progress_bytes` in this time; else 408."""
    body_progress_bytes: int = 16 << 10
    idle_s: float = 330.0
    """Between two requests of one connection. Clients that keep some in pools keep them five minutes at most,
    or ask whether they are still open; when all are taken, those in nobody's use give way.
    """
    write_s: float = 60.0
    """A client that takes nothing of what was written for it is cut off after this time."""
    linger_s: float = 2.0
    """How long a connection that is to be closed is read from, so that the client can read its reply."""
    max_connections: int = _MAX_CONNECTIONS
    num_spare: int = 64
    """Of the connections (a quarter at most): they only serve to say that there are too many requests."""
    newcomer_s: float = 1.0
    """When all connections are taken, one that has sent no request for this long gives way to a new one."""

    @property
    def max_requests(self) -> int:
        """Requests that are answered at once; beyond: 503."""
        return max(1, self.max_connections - min(self.num_spare, self.max_connections // 4))


def raise_descriptor_limit() -> int:
    """Raises the process's soft limit to the hard one; returns how many connections there can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems refuse what they call their own limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    return max(16, min(_MAX_CONNECTIONS, soft - _RESERVED_DESCRIPTORS))
