"""Bodies of what registries answer."""

from __future__ import annotations

import asyncio

import httpx

_PATIENCE_S = 60.0
"""For all of it: who sends a byte now and then would never be found silent."""


class BodyTooLong(Exception):
    """A registry sends more than can be meant."""


async def read_body(response: httpx.Response, max_bytes: int) -> bytes:
    """What is left of a response that was sent for with `stream=True`, as it came over the network: a packed
    one would unpack to anything. Raises BodyTooLong, httpx.HTTPError, TimeoutError.
    """
    body = bytearray()
    async with asyncio.timeout(_PATIENCE_S):
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > max_bytes:
                raise BodyTooLong(f"the registry's answer is longer than {max_bytes} bytes")
    return bytes(body)
