"""Unforeseen exceptions: logged with their traceback, and told in short to the request concerned."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

_MOST_TEXT = 500


def unforeseen(request_id: str, error: Exception) -> str:
    """The error text for a request that cannot go on; for use where `error` is being handled."""
    log.error("request %s cannot go on", request_id, exc_info=error)
    return f"an internal error: {error!r}"[:_MOST_TEXT]
