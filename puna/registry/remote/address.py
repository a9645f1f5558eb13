"""Where a model's registry is."""

from __future__ import annotations

import httpx

from puna.registry.errors import PullError
from puna.registry.name import ModelName


def registry_of(name: ModelName, *, insecure: bool) -> httpx.URL:
    """Base URL of the name's registry. Raises PullError."""
    try:
        return httpx.URL(f"{'http' if insecure else 'https'}://{name.host}")
    except httpx.InvalidURL as error:
        raise PullError(f"pull model manifest: {name.host} is no address") from error
