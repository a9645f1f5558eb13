"""KV memory lent to other engines: a service beside HTTP, whose packages only those need who want it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from puna.daemon.runtime import Runtime
from puna.kvcached.service.endpoint import Endpoint

log = logging.getLogger(__name__)

_MISSING = 'OLLAMA_KVCACHED_SOCKET needs further packages: pip install "puna[kvcached]"'


class MissingPackage(RuntimeError):
    """The text says how to install it."""


def require_packages() -> None:
    """Raises MissingPackage."""
    try:
        from google.protobuf.runtime_version import VersionError
    except ImportError as error:
        raise MissingPackage(_MISSING) from error
    try:
        import puna.kvcached.service.service  # noqa: F401
    except (ImportError, VersionError) as error:
        raise MissingPackage(_MISSING) from error


@asynccontextmanager
async def lending(runtime: Runtime, endpoint: Endpoint | None) -> AsyncGenerator[None, None]:
    """Serves the endpoint, if there is one; inside the context, the runtime is closed."""
    if endpoint is None:
        yield
        return
    from puna.kvcached.service.service import KvCachedService

    service = KvCachedService(runtime, endpoint)
    await service.start()
    log.info("lending KV memory on %s", endpoint.listener.getsockname())
    try:
        yield
    finally:
        await service.close()
