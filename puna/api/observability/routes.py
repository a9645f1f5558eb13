"""GET /metrics and /debug/trace."""

from __future__ import annotations

import asyncio
import math

from starlette.requests import Request
from starlette.responses import Response

from puna.api.context import context_of
from puna.api.errors import ApiError
from puna.api.observability import chrome_trace
from puna.api.observability.http_counts import HttpCounts
from puna.api.replying.replies import JSON_MEDIA_TYPE
from puna.daemon.runtime import Observation

_NO_ANSWER = "the worker does not answer"


async def metrics(request: Request) -> Response:
    """Metrics for Prometheus. Works without a worker, and loads nothing."""
    context = context_of(request)
    try:
        observation = await context.runtime.observe()
    except TimeoutError:
        raise ApiError(503, _NO_ANSWER) from None
    return await asyncio.to_thread(_exposition, observation, context.http_counts.copy())


async def trace(request: Request) -> Response:
    """The last seconds of the step loop, as Chrome trace events."""
    seconds = _seconds(request.query_params.get("seconds"))
    try:
        recorded, names = await context_of(request).runtime.trace(seconds)
    except TimeoutError:
        raise ApiError(503, _NO_ANSWER) from None
    body = await asyncio.to_thread(chrome_trace.encode, recorded, names)
    headers = {"Content-Disposition": 'attachment; filename="puna-trace.json"'}
    return Response(body, media_type=JSON_MEDIA_TYPE, headers=headers)


def _exposition(observation: Observation, http_counts: HttpCounts) -> Response:
    from puna.api.observability import exposition  # prometheus_client is slow to import

    return Response(exposition.encode(observation, http_counts), media_type=exposition.CONTENT_TYPE)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ApiError(400, f"seconds must be a positive number, not {text!r}")
    return seconds
