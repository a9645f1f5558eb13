"""Memory for what clients send: each body is bounded, and so are all requests together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from puna.api.errors import ApiError
from puna.config.sizes import binary_size

_FREE_BYTES = 64 << 10
"""Of each request: small ones are never refused because of large ones. Connections are bounded, too."""
_BODIES = 8


class Share:
    """What one request holds of the budget."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self.num_bytes = 0

    @property
    def most_bytes(self) -> int:
        """Of one body."""
        return self._budget.limit

    def check(self, num_bytes: int) -> None:
        """ApiError (413) for a body of so many bytes."""
        if num_bytes > self._budget.limit:
            raise ApiError(413, f"request body too large: the limit is {binary_size(self._budget.limit)}")

    def grow(self, num_bytes: int) -> None:
        """ApiError (503) if all requests together hold too much already."""
        counted = max(self.num_bytes + num_bytes - _FREE_BYTES, 0)
        self._budget.take(counted - max(self.num_bytes - _FREE_BYTES, 0))
        self.num_bytes += num_bytes


class BodyBudget:
    """limit: bytes of one body; requests under way may hold eight times as much."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._num_left = _BODIES * limit
        self._lock = threading.Lock()  # long bodies are decoded in threads

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Given back at the end."""
        share = Share(self)
        try:
            yield share
        finally:
            with self._lock:
                self._num_left += max(share.num_bytes - _FREE_BYTES, 0)

    def take(self, num_bytes: int) -> None:
        """ApiError (503) if there is no more."""
        with self._lock:
            has_room = num_bytes <= self._num_left
            self._num_left -= num_bytes * has_room
        if not has_room:
            raise ApiError(503, "server busy, please try again.  too much in other requests", retry_after_s=1)
