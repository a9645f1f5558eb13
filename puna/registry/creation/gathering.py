"""The files of a new model: those of another one, or what was uploaded, converted where it has to be."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import ExitStack, aclosing
from functools import partial
from pathlib import Path

from puna.registry.creation.description import WeightsDescription
from puna.registry.creation.parts import Part, inherited
from puna.registry.creation.recipe import UNQUANTIZED, Files
from puna.registry.creation.sorting import gguf_files, is_safetensors
from puna.registry.creation.tools import Conversion, Tools
from puna.registry.digest import Digest
from puna.registry.errors import CreationError, QuantizationError
from puna.registry.in_thread import in_thread
from puna.registry.local.local_directory import LocalDirectory
from puna.registry.local.local_model import LocalModel
from puna.registry.progress import Progress
from puna.registry.store.blob_copy import copy_blob, copy_file
from puna.registry.store.blob_reader import open_blob
from puna.registry.store.blob_writer import BlobWriter
from puna.registry.store.files.free_space import check_free_space
from puna.registry.store.files.regular_file import open_regular
from puna.registry.store.files.reported import reported
from puna.registry.store.store import Store
from puna.registry.store.stored_model import StoredModel

Blob = Digest | BlobWriter | Path
"""In the store; new and verified; of another program."""


class Gathering:
    """Use its generators one after the other, to their ends: each adds to `parts`.

    scratch: removes, when it is closed, new files that have not become blobs.
    They raise CreationError, QuantizationError, MissingBlob, StoreError, GgufError.
    """

    def __init__(self, store: Store, tools: Tools, scratch: ExitStack) -> None:
        self._store = store
        self._tools = tools
        self._scratch = scratch
        self.parts: list[Part] = []
        self.weights: WeightsDescription | None = None
        """Of new ones."""
        self.companions: list[str] = []
        """Architectures of the projectors that came with new ones."""
        self.spent: list[Digest] = []
        """Blobs that others have been made of."""

    async def inherit(
        self, base: StoredModel, kinds: Collection[str], quantize: str
    ) -> AsyncGenerator[Progress, None]:
        """The files of another model that are of these kinds."""
        if isinstance(base, LocalModel):
            async with aclosing(self._from_local(base, quantize)) as statuses:
                async for progress in statuses:
                    yield progress
            return
        for part in inherited(base, kinds):
            blob = await self._brought(base, part)
            if part.kind != "model" or not quantize:
                self.parts.append(part._replace(blob=blob))
                continue
            weights = await self._describe(blob)
            async with aclosing(self._whole({"model.gguf": blob}, weights, part, quantize)) as statuses:
                async for progress in statuses:
                    yield progress

    async def _from_local(self, base: LocalModel, quantize: str) -> AsyncGenerator[Progress, None]:
        """Files that were used in place so far."""
        if isinstance(base, LocalDirectory):
            shards = {base.relative(path): path for path in base.paths}
            async with aclosing(self._from_safetensors(shards, Part("model", b""), quantize)) as statuses:
                async for progress in statuses:
                    yield progress
            return
        yield Progress("parsing GGUF")
        found, part = await self._describe(base.model_path), Part("model", b"", base.name.short)
        files: dict[str, Blob] = {path.name: path for path in base.paths}
        if len(files) == 1 and quantize in ("", found.quantization):
            writer = self._scratch.enter_context(self._store.blob_writer())
            await in_thread(partial(copy_file, base.open(), writer))
            self._add(part, writer, found)
            return
        async with aclosing(self._whole(files, found, part, quantize)) as statuses:
            async for progress in statuses:
                yield progress

    async def add(self, files: Files, kind: str, quantize: str = "") -> AsyncGenerator[Progress, None]:
        """Uploaded files, one of which (or all together) is to be a layer of this kind. Files of models may
        bring projectors and adapters along.
        """
        if not files:
            raise CreationError("no files provided to convert")
        if is_safetensors(files):
            made = self._from_safetensors(files, Part(kind, b""), quantize)
        else:
            made = self._from_gguf(files, Part(kind, b""), quantize)
        async with aclosing(made) as statuses:
            async for progress in statuses:
                yield progress

    async def _from_safetensors(
        self, files: Mapping[str, Blob], part: Part, quantize: str
    ) -> AsyncGenerator[Progress, None]:
        noun = "adapter" if part.kind == "adapter" else "model"
        yield Progress(f"converting {noun}")
        status = f"quantizing F16 model to {quantize}" if quantize else f"converting {noun}"
        conversion = Conversion("adapter" if noun == "adapter" else "safetensors", quantize, status)
        async with aclosing(self._converted(files, conversion, part)) as statuses:
            async for progress in statuses:
                yield progress

    async def _from_gguf(self, files: Files, part: Part, quantize: str) -> AsyncGenerator[Progress, None]:
        described: dict[str, WeightsDescription] = {}
        found = await asyncio.to_thread(gguf_files, self._store, files)
        for name, digest in found.items():
            yield Progress("parsing GGUF")
            described[name] = await self._describe(digest)
        main_kind = "adapter" if part.kind == "adapter" else "model"
        mains = {name: found[name] for name in found if described[name].kind == main_kind}
        for name in found.keys() - mains.keys():
            self._add_companion(name, found[name], described[name], part.kind)
        if main_kind == "adapter" and len(mains) > 1:
            raise CreationError("only one adapter is currently supported")
        if not mains:
            raise CreationError(f"none of the files is a GGUF {main_kind}")
        first = described[next(iter(mains))]
        if first.num_parts != len(mains):
            raise CreationError(f"{len(mains)} GGUF files, where one model has {first.num_parts}")
        async with aclosing(self._whole(mains, first, part, quantize)) as statuses:
            async for progress in statuses:
                yield progress

    def _add_companion(self, name: str, digest: Digest, found: WeightsDescription, kind: str) -> None:
        if kind != "model" or found.kind not in ("projector", "adapter"):
            raise CreationError(f"{name} cannot be used as {kind}: it is of the kind {found.kind[:40]}")
        self.parts.append(Part(found.kind, digest))
        if found.kind == "projector":
            self.companions.append(found.architecture)

    async def _whole(
        self, files: Mapping[str, Blob], found: WeightsDescription, part: Part, quantize: str
    ) -> AsyncGenerator[Progress, None]:
        """One GGUF file, or all parts of one, as `part`."""
        if quantize in ("", found.quantization):
            if len(files) == 1:
                (blob,) = files.values()
                assert not isinstance(blob, Path)
                self._add(part, blob, found)
                return
            status, quantize = "merging GGUF files", ""
        elif found.quantization in UNQUANTIZED:
            status = f"quantizing {found.quantization} model to {quantize}"
        else:
            raise QuantizationError("quantization is only supported for F16, BF16 and F32 models")
        async with aclosing(self._converted(files, Conversion("gguf", quantize, status), part)) as statuses:
            async for progress in statuses:
                yield progress

    async def _converted(
        self, files: Mapping[str, Blob], conversion: Conversion, part: Part
    ) -> AsyncGenerator[Progress, None]:
        writer = self._scratch.enter_context(self._store.blob_writer())
        with ExitStack() as opened:
            descriptors = {name: self._open(blob, opened) for name, blob in files.items()}
            num_bytes = sum(os.fstat(descriptor).st_size for descriptor in descriptors.values())
            check_free_space(self._store.blobs, num_bytes)
            if conversion.kind == "adapter":
                weights = next(part.blob for part in self.parts if part.kind == "model")
                assert not isinstance(weights, bytes)
                conversion = conversion._replace(base=self._open(weights, opened))
            async with aclosing(self._tools.convert(descriptors, writer.descriptor, conversion)) as statuses:
                async for progress in statuses:
                    yield progress
        yield Progress("verifying conversion")
        await in_thread(writer.take_file)
        self._add(part._replace(parent=""), writer, await self._describe(writer))
        self.spent += [blob for blob in files.values() if isinstance(blob, str)]

    def _add(self, part: Part, blob: Digest | BlobWriter, found: WeightsDescription) -> None:
        self.parts.append(part._replace(blob=blob))
        if part.kind == "model":
            self.weights = found

    async def _brought(self, base: StoredModel, part: Part) -> Digest | BlobWriter:
        """Copied if it is in a store that is only read."""
        assert isinstance(part.blob, str)
        if self._store.has_blob(part.blob):
            return part.blob
        path = base.model_path.with_name(self._store.blob_path(part.blob).name)
        writer = self._scratch.enter_context(self._store.blob_writer(part.blob))
        await in_thread(partial(copy_blob, path, writer))
        return writer

    async def _describe(self, blob: Blob) -> WeightsDescription:
        with ExitStack() as opened:
            return await self._tools.describe(self._open(blob, opened))

    def _open(self, blob: Blob, opened: ExitStack) -> int:
        if isinstance(blob, str):
            descriptor = self._store.open_blob(blob)
        elif isinstance(blob, BlobWriter):
            descriptor = open_blob(blob.path)
        else:
            with reported(f"cannot read {blob.name}"):
                descriptor = open_regular(blob)
        opened.callback(os.close, descriptor)
        return descriptor
