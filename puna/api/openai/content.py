"""The content of messages: a text, or a list of parts, as chat completions and responses have them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Any, NamedTuple

from puna.api.errors import ApiError
from puna.chat.images import joined

_IMAGE_PREFIXES = (
    *(f"data:image/{kind};base64," for kind in ("jpeg", "jpg", "png", "webp", "gif", "bmp")),
    "data:;base64,",
)


class Content(NamedTuple):
    """What a message says and shows."""

    text: str = ""
    """See puna.chat.images for where images stand in it."""
    images: Sequence[bytes] = ()


def parse_content(content: Any) -> Content:
    """Texts of several parts become one, a line each; images stand where they do among them. ApiError (400)
    for what cannot be used.
    """
    if isinstance(content, str):
        return Content(content)
    if not isinstance(content, list):
        kind = "<nil>" if content is None else type(content).__name__
        raise ApiError(400, f"invalid message content type: {kind}")
    return Content(*joined([_part(part) for part in content], "\n"))


def _part(part: Any) -> str | bytes:
    """Its text, or the image or sound that it is."""
    kind = part.get("type") if isinstance(part, dict) else None
    match kind:
        case "text" | "input_text" | "output_text" if isinstance(text := part.get("text"), str):
            return text
        case "refusal" if isinstance(text := part.get("refusal"), str):
            return text
        case "image_url" | "input_image":
            image = part.get("image_url")
            return _image(image.get("url") if isinstance(image, dict) else image)
        case "input_audio" if isinstance(audio := part.get("input_audio"), dict):
            return _base64(str(audio.get("data", "")))
        case "file" | "input_file":
            raise ApiError(400, "file inputs are not currently supported")
    raise ApiError(400, "invalid message format")


def _image(url: Any) -> bytes:
    if not isinstance(url, str):
        raise ApiError(400, "invalid image input")
    if url.startswith(("http://", "https://")):
        raise ApiError(400, "image URLs are not currently supported, please use base64 encoded data instead")
    for prefix in _IMAGE_PREFIXES:
        if url.startswith(prefix):
            return _base64(url[len(prefix) :])
    raise ApiError(400, "invalid image input")


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise ApiError(400, "invalid image input") from error
