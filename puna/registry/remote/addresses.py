"""Where the registry of a model is."""

from __future__ import annotations

from collections.abc import Iterable

import httpx

from puna.registry.errors import InsecureProtocol, InvalidModelName
from puna.registry.name import ModelName


def registry_of(name: ModelName, *, insecure: bool) -> httpx.URL:
    """URL of the registry that the name speaks of; `/v2/...` goes behind it.

    insecure: without TLS. Raises InsecureProtocol for a name that wants none where this is not set, and
    InvalidModelName.
    """
    if name.scheme == "http" and not insecure:
        raise InsecureProtocol
    try:
        url = httpx.URL(f"{'http' if insecure else 'https'}://{name.host}")
    except httpx.InvalidURL:
        raise InvalidModelName(str(name)) from None
    if url.port is not None and not 0 < url.port < 1 << 16:
        raise InvalidModelName(str(name))
    return url


def sources_of(
    name: ModelName, mirrors: Iterable[tuple[str, str]] = (), *, insecure: bool = False
) -> list[httpx.URL]:
    """Where the model can be pulled from, the best first: mirrors, `(host, URL)` each, of its registry, then
    the registry itself. Raises as registry_of() does.
    """
    own = registry_of(name, insecure=insecure)
    host = name.host.lower()
    return [*(httpx.URL(url) for mirrored, url in mirrors if mirrored.lower() == host), own]
