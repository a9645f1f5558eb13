"""POST /api/create."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

import msgspec
from starlette.requests import Request

from puna.api.bodies.body import read_body
from puna.api.context import ApiContext, context_of
from puna.api.errors import ApiError
from puna.api.ollama.progress import progress_response
from puna.api.ollama.pull import pulled
from puna.api.options import parse_options
from puna.api.replying.streaming import EventResponse
from puna.chat.errors import TemplateError
from puna.convert.errors import ConversionError
from puna.convert.job import BASE_MODEL, ConvertJob
from puna.gguf import GgufError
from puna.registry import InvalidModelName, MissingBlob, ModelName, StoredMessage, parse_digest
from puna.registry.creation.config import overrides
from puna.registry.creation.create import create as create_model
from puna.registry.creation.recipe import Files, Recipe, quantization
from puna.registry.creation.tools import Conversion, Tools
from puna.registry.errors import CreationError
from puna.registry.modelfile.errors import ModelfileError
from puna.registry.modelfile.grammar import ROLES
from puna.registry.modelfile.modelfile import parse_version
from puna.registry.progress import Progress

_NO_DIGEST = "0" * 19
"""Of a file that is being made: clients show progress by digest."""
_Word = Annotated[str, msgspec.Meta(max_length=256)]


class CreateRequest(msgspec.Struct):
    """`name` and `quantization` are older spellings of `model` and `quantize`."""

    model: str = ""
    name: str = ""
    from_: str = msgspec.field(default="", name="from")
    files: dict[str, str] = {}
    adapters: dict[str, str] = {}
    draft_files: dict[str, str] = {}
    draft_quantize: str = ""
    template: str = ""
    system: str = ""
    renderer: _Word = ""
    parser: _Word = ""
    requires: _Word = ""
    license: str | list[str] = ""
    parameters: dict[str, Any] = {}
    messages: list[StoredMessage] = []
    quantize: str = ""
    quantization: str = ""
    info: dict[str, Any] = {}
    remote_host: str = ""
    stream: bool = True


async def create(request: Request) -> EventResponse[Progress]:
    """Makes a model of another one, or of uploaded files."""
    body = await read_body(request, CreateRequest)
    context = context_of(request)
    events = _create(context, _recipe(body))
    return progress_response(events, stream=body.stream)


async def _create(context: ApiContext, recipe: Recipe) -> AsyncGenerator[Progress, None]:
    try:
        async with aclosing(create_model(context.runtime.store, recipe, _tools(context))) as statuses:
            async for progress in statuses:
                yield progress
    except (GgufError, MissingBlob) as error:
        raise ApiError(400, str(error)) from error


def _recipe(body: CreateRequest) -> Recipe:
    """ApiError (400), InvalidModelName, InvalidDigest, CreationError, QuantizationError."""
    if body.remote_host:
        raise ApiError(
            400, "models that run on another host are not supported: puna runs all on this machine"
        )
    if wrong := next((message.role for message in body.messages if message.role.lower() not in ROLES), None):
        raise ApiError(400, f"invalid role: {wrong[:40]}")
    return Recipe(
        name=ModelName.parse(body.model or body.name),
        base=_base(body.from_) if body.from_ else None,
        files=_files(body.files),
        adapters=_files(body.adapters),
        draft_files=_files(body.draft_files),
        quantize=quantization(body.quantize or body.quantization),
        draft_quantize=quantization(body.draft_quantize),
        template=body.template,
        system=body.system,
        renderer=body.renderer,
        parser=body.parser,
        requires=_version(body.requires),
        licenses=tuple(filter(None, [body.license] if isinstance(body.license, str) else body.license)),
        parameters=_parameters(body.parameters),
        messages=tuple(StoredMessage(each.role.lower(), each.content) for each in body.messages),
        config=overrides(body.info),
    )


def _base(text: str) -> ModelName:
    try:
        return ModelName.parse(text)
    except InvalidModelName as error:
        raise ApiError(400, f'from: "{text[:100]}" is no name of a model') from error


def _files(files: Mapping[str, str]) -> Files:
    return {name: parse_digest(digest) for name, digest in files.items()}


def _version(text: str) -> str:
    try:
        return parse_version(text) if text else ""
    except ModelfileError as error:
        raise ApiError(400, str(error)) from error


def _parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """What would make each request of the model fail is refused now."""
    try:
        parse_options(parameters, {})
    except ApiError as error:
        raise ApiError(400, error.text) from error
    stop = parameters.get("stop")
    return parameters | {"stop": [stop]} if isinstance(stop, str) else parameters


def _tools(context: ApiContext) -> Tools:
    inspector = context.inspector

    async def check_templates(template: str, renderer: str, parser: str) -> None:
        if not (template or renderer or parser):
            return
        try:
            await inspector.check_given(template, renderer, parser)
        except TemplateError as error:
            raise CreationError(f"template error: {error}") from error

    async def convert(
        files: Mapping[str, int], output: int, conversion: Conversion
    ) -> AsyncGenerator[Progress, None]:
        job = ConvertJob(conversion.kind, conversion.quantize)
        if conversion.base is not None:
            files = {**files, BASE_MODEL: conversion.base}
        if context.conversions.locked():
            yield Progress("waiting for other conversions")
        try:
            async with context.conversions, aclosing(context.converter.convert(files, output, job)) as steps:
                async for step in steps:
                    yield Progress(conversion.status, _NO_DIGEST, step.total, step.completed)
        except ConversionError as error:
            raise CreationError(str(error)) from error

    pull = partial(pulled, context)
    return Tools(inspector.describe, check_templates, convert, pull, not context.runtime.settings.no_prune)
