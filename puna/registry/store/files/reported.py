"""Errors of the file system, as clients are told of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from puna.registry.errors import StoreError

log = logging.getLogger(__name__)


@contextmanager
def reported(action: str) -> Iterator[None]:
    """Turns an OSError into a StoreError that says what failed and why; only the log says where."""
    try:
        yield
    except OSError as error:
        log.warning("%s: %s", action, error)
        raise StoreError(f"{action}: {error.strerror or error}") from error
