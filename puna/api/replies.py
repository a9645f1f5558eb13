"""JSON replies."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

JSON_MEDIA_TYPE = "application/json; charset=utf-8"


def json_response(content: Any, status: int = 200) -> Response:
    """Anything msgspec can encode, compact."""
    return Response(msgspec.json.encode(content), status, media_type=JSON_MEDIA_TYPE)
