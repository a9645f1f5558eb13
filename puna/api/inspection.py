"""What the weights' file says about a model, read once per file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from puna.backends.base import ModelSource
from puna.chat.errors import TemplateError
from puna.chat.model_record import ModelRecord
from puna.chat.templates.model_templates import ModelTemplates
from puna.daemon.opening import ModelOpener, open_projector
from puna.daemon.text.pool import TextPool
from puna.gguf import GgufError
from puna.registry import ModelEntry, StoredModel
from puna.registry.creation.description import WeightsDescription

V = TypeVar("V")

_MAX_RECORDS = 10_000
"""Each has a few kilobytes at most."""
_CAPABILITIES = ("completion", "tools", "insert", "vision", "embedding", "thinking", "image", "audio")
_MAX_LISTED = 4
"""Files that are read at once for lists: they take descriptors, and others' requests are not to wait."""


class Inspector:
    """Has files read when they are first asked for. What has been read stays: blobs never change.

    prefers_go: see ModelTemplates. All methods raise what TextPool raises, and GgufError if the file cannot
    be used.
    """

    def __init__(self, text: TextPool, opener: ModelOpener, prefers_go: bool | None = None) -> None:
        self._text = text
        self._opener = opener
        self._prefers_go = prefers_go
        self._records: dict[str, ModelRecord] = {}
        self._template_errors: dict[str, str] = {}
        self._listing = asyncio.Semaphore(_MAX_LISTED)

    def templates(self, model: ModelEntry, go: str) -> ModelTemplates:
        """What decides how the model's prompts are made. go: its Go template, if it has one."""
        config = model.config
        return ModelTemplates(
            go=go,
            renderer=config.renderer or "",
            parser=config.parser or "",
            family=config.family,
            prefers_go=self._prefers_go,
        )

    async def record(self, model: ModelEntry) -> ModelRecord:
        """Raises MissingBlob, StoreError."""
        digest = model.digest
        if digest not in self._records:
            async with self._opener.opened(model) as source:
                go = await asyncio.to_thread(model.read_template)
                record = await self._text.inspect(source, self.templates(model, go))
            _keep(self._records, digest, _configured(record, model))
        return _usable(self._records[digest])

    async def record_for_list(self, model: ModelEntry) -> ModelRecord:
        """As record(), for lists of any length."""
        async with self._listing:
            return await self.record(model)

    async def check_template(self, model: StoredModel) -> None:
        """Raises TemplateError if the template of choice cannot be used, MissingBlob, StoreError."""
        digest = model.digest
        if digest not in self._template_errors:
            _keep(self._template_errors, digest, await self._template_error(model))
        if error := self._template_errors[digest]:
            raise TemplateError(error)

    async def check_given(self, template: str, renderer: str, parser: str) -> None:
        """Before a model is made that has them; each may be empty. Raises TemplateError."""
        await self._text.check_template(
            ModelSource("the model", ()), ModelTemplates(go=template, renderer=renderer, parser=parser)
        )

    async def _template_error(self, model: StoredModel) -> str:
        async with self._opener.opened(model) as source:
            try:
                await self._text.check_template(source, self.templates(model, model.template or ""))
            except TemplateError as error:
                return str(error)
        return ""

    @asynccontextmanager
    async def described(
        self, model: ModelEntry, *, verbose: bool, with_template: bool, basename: str = ""
    ) -> AsyncIterator[int]:
        """A file with members of a JSON object, see TextPool.describe(). Raises MissingBlob, StoreError."""
        async with (
            self._opener.opened(model) as source,
            self._text.describe(
                source, verbose=verbose, with_template=with_template, basename=basename
            ) as descriptor,
        ):
            yield descriptor

    @asynccontextmanager
    async def described_projector(self, model: ModelEntry, *, verbose: bool) -> AsyncIterator[int]:
        """The same of its projector, which it has."""
        source = await open_projector(model)
        try:
            described = self._text.describe(source, verbose=verbose, with_template=False, is_projector=True)
            async with described as descriptor:
                yield descriptor
        finally:
            source.close()

    async def describe(self, descriptor: int) -> WeightsDescription:
        """What a new GGUF file says; the descriptor stays the caller's."""
        record = _usable(await self._text.inspect(ModelSource("the file", (descriptor,))))
        return WeightsDescription(
            architecture=record.architecture or "unknown",
            parameter_size=record.parameter_size,
            quantization=record.quantization,
            kind=record.kind,
            num_parts=record.num_parts,
        )


def _keep(table: dict[str, V], digest: str, value: V) -> None:
    table[digest] = value
    if len(table) > _MAX_RECORDS:
        del table[next(iter(table))]


def _configured(record: ModelRecord, model: ModelEntry) -> ModelRecord:
    """With what is known of the model beside its file."""
    named = [name for name in model.config.capabilities or [] if name in _CAPABILITIES]
    sees = ["vision"] if model.projector_path is not None else []
    capabilities = dict.fromkeys([*record.capabilities, *named, *sees])
    return msgspec.structs.replace(record, capabilities=tuple(capabilities))


def _usable(record: ModelRecord) -> ModelRecord:
    if record.error:
        raise GgufError(record.error)
    return record
