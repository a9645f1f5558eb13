"""The HTTP request that a task works for: log lines and the engine's requests are named by it."""

from __future__ import annotations

from contextvars import ContextVar

REQUEST_ID: ContextVar[str] = ContextVar("REQUEST_ID", default="")
"""Empty outside of requests. Tasks inherit it from those that started them."""
