"""The OpenAPI document of a table of routes: https://spec.openapis.org/oas/v3.1.0."""

from __future__ import annotations

import inspect
import re
from array import array
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.routing import Route

import puna
from puna.api.faces import Endpoint

_JSON = "application/json"
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
_OUT = "#/components/schemas/{name}"


def openapi_document(routes: Iterable[Route]) -> dict[str, Any]:
    """Of routes that faces made."""
    endpoints = [(route, route.app) for route in routes]
    kinds = [
        kind
        for _, endpoint in endpoints
        if isinstance(endpoint, Endpoint)
        for kind in (endpoint.face.error, endpoint.operation.body, endpoint.operation.reply)
        if kind is not None
    ]
    schemas, components = msgspec.json.schema_components(kinds, schema_hook=_schema, ref_template=_OUT)
    by_kind = list(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route, endpoint in endpoints:
        if not isinstance(endpoint, Endpoint):
            continue
        methods = [
            method for method in route.methods or () if method != "HEAD" or len(route.methods or ()) == 1
        ]
        for method in methods:
            path = _PARAMETER.sub(r"{\1}", route.path)
            paths.setdefault(path, {})[method.lower()] = _operation(route.path, endpoint, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "puna",
            "version": puna.__version__,
            "description": "Keys match in any case, unknown ones are ignored, and null means absent.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _schema(kind: type) -> dict[str, Any]:
    """Of types that msgspec does not know."""
    if kind is array:
        return {"type": "array", "items": {"type": "number"}}
    raise NotImplementedError


def _operation(path: str, endpoint: Endpoint, by_kind: list[tuple[Any, Any]]) -> dict[str, Any]:
    def schema_of(kind: Any) -> dict[str, Any]:
        found: dict[str, Any] = next(schema for known, schema in by_kind if known == kind)
        return found

    operation = endpoint.operation
    successes, errors = operation.statuses
    replies = {str(status): _reply(status, _content(endpoint, schema_of)) for status in successes}
    of_errors = {_JSON: {"schema": schema_of(endpoint.face.error)}}
    replies |= {str(status): _reply(status, of_errors) for status in errors}
    described: dict[str, Any] = {
        "summary": (inspect.getdoc(endpoint.handler) or "").partition("\n")[0],
        "tags": [endpoint.face.name],
        "responses": replies,
    }
    parameters = [_parameter(name, "path", {"type": "string"}) for name in _PARAMETER.findall(path)]
    parameters += [_parameter(name, "query", schema) for name, schema in operation.query.items()]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        content: dict[str, Any] = {_JSON: {"schema": schema_of(operation.body)}}
        described["requestBody"] = {"required": True, "content": content}
    elif operation.raw_body:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        described["requestBody"] = {"content": content}
    return described


def _content(endpoint: Endpoint, schema_of: Any) -> dict[str, Any]:
    operation = endpoint.operation
    content: dict[str, Any] = {operation.media: {"schema": {"type": "string"}}} if operation.media else {}
    if operation.reply is not None:
        content[_JSON] = {"schema": schema_of(operation.reply)}
    if operation.streams:
        content[operation.streams] = {"schema": {"type": "string"}}
    return content


def _reply(status: int, content: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": HTTPStatus(status).phrase}
    if content:
        described["content"] = content
    return described


def _parameter(name: str, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}
