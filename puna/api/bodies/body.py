"""Request bodies: JSON to typed structs, as forgiving about keys and as strict about types as Go is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import ClientDisconnect, Request

from puna._native import json_structure
from puna.api.bodies.body_budget import Share
from puna.api.bodies.content_encoding import decompress
from puna.api.bodies.integers import within_64_bits
from puna.api.errors import ApiError

T = TypeVar("T", bound=msgspec.Struct)

MAX_DEPTH = 128
MAX_VALUES = 1_000_000
"""Each takes some 64 bytes as a Python object, however few it takes in the text."""
_VALUE_BYTES = 64
_LONG_BYTES = 1 << 20
_LONG_DIGITS = 19
"""So many may be more than 64 bits."""
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")


async def read_body(request: Request, kind: type[T], *, empty: str = "missing request body") -> T:
    """The body as a `kind`, whatever its content type. ApiError (400, 413, 415, 503) says what is wrong.

    Keys match case-insensitively, unknown ones are ignored, null means absent, integers of more than 64 bits
    become floating-point numbers, and what follows the first JSON value is not read. empty: error text for a
    body without any value.
    """
    share: Share = request.state.share
    body: bytes | bytearray = await _receive(request, share)
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        body = await asyncio.to_thread(decompress, body, encoding, share.most_bytes)
        share.check(len(body))
        share.grow(len(body))
    if not body.strip():
        raise ApiError(400, empty)
    if len(body) < _LONG_BYTES:
        return decode(body, kind, share)
    return await asyncio.to_thread(decode, body, kind, share)  # others go on meanwhile


async def _receive(request: Request, share: Share) -> bytearray:
    """What is announced too long is not even begun."""
    if (announced := request.headers.get("content-length", "")).isdecimal():
        share.check(int(announced))
    body = bytearray()
    try:
        async for part in request.stream():
            share.check(len(body) + len(part))
            share.grow(len(part))
            body += part
    except ClientDisconnect as error:
        raise ApiError(499, "request canceled") from error
    return body


def decode(body: bytes | bytearray, kind: type[T], share: Share) -> T:
    """`body` as a `kind`, under the rules of `read_body`."""
    num_values, depth, num_digits = json_structure(body)
    if depth > MAX_DEPTH:
        raise ApiError(400, "invalid JSON: exceeded max depth")
    if num_values > MAX_VALUES:
        raise ApiError(413, f"request body too large: it has more than {MAX_VALUES} values")
    share.grow(num_values * _VALUE_BYTES)
    try:
        value = _first_value(body)
        if num_digits >= _LONG_DIGITS:
            value = within_64_bits(value)
        return msgspec.convert({} if value is None else _match_keys(value, kind), kind)
    except msgspec.ValidationError as error:
        raise ApiError(400, f"invalid request: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"invalid JSON: {error}") from error


def _first_value(body: bytes | bytearray) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        trailing = _TRAILING.search(str(error))
        if trailing is None:
            raise
        return msgspec.json.decode(body[: int(trailing[1]) - 1])  # the byte it names has been read already


def _match_keys(value: Any, kind: Any) -> Any:
    """`value` with its objects' keys spelled as the structs in `kind` spell them, and without nulls."""
    if isinstance(value, list) and get_origin(kind) is list:
        (item,) = get_args(kind)
        return [_match_keys(each, item) for each in value]
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = _fields(kind)
        matched = {}
        for key, field_value in value.items():
            name, field_kind = fields.get(key.lower(), (key, Any))
            if field_value is not None and (key == name or name not in value):
                matched[name] = _match_keys(field_value, field_kind)
        return matched
    return value


@cache
def _fields(kind: type[msgspec.Struct]) -> Mapping[str, tuple[str, Any]]:
    """Fields of `kind` by their lower-case key: key as the struct has it, type."""
    hints = get_type_hints(kind)
    return {
        field.encode_name.lower(): (field.encode_name, hints[field.name])
        for field in msgspec.structs.fields(kind)
    }
