"""Pushing a model to its registry: every blob that is not there, then its manifest, byte for byte."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from puna.registry.digest import blob_file_name, parse_digest
from puna.registry.errors import InvalidModelName, PushError, RegistryError, RemoteError
from puna.registry.in_thread import in_thread
from puna.registry.name import ModelName
from puna.registry.progress import Progress
from puna.registry.remote.addresses import registry_of
from puna.registry.remote.client import RegistryClient, connect
from puna.registry.remote.registry_pull import PROGRESS_S, RegistryAccess
from puna.registry.remote.upload import BlobUpload
from puna.registry.store.blob_reader import open_blob
from puna.registry.store.manifest import Layer
from puna.registry.store.store import RawManifest, Store


async def push(store: Store, name: ModelName, access: RegistryAccess) -> AsyncGenerator[Progress, None]:
    """Sends the model to the registry that its name speaks of; mirrors are not written to.

    Closing the generator cancels it; what the registry has by then is not sent again. Raises PushError,
    ModelNotFound, CorruptManifest, MissingBlob, StoreError, AccessDenied, SigningKeyError, InsecureProtocol,
    InvalidModelName.
    """
    yield Progress("retrieving manifest")
    base = registry_of(name, insecure=access.insecure)
    try:
        found = await asyncio.to_thread(store.read_manifest, name)
    except RegistryError:
        yield Progress("couldn't retrieve manifest")
        raise
    repository = f"{found.name.namespace}/{found.name.model}"
    async with await connect(base, access.key, access.stall_s) as client:
        try:
            for layer in (*found.manifest.layers, found.manifest.config):
                async with aclosing(_push_blob(client, repository, found, layer, access)) as statuses:
                    async for progress in statuses:
                        yield progress
            yield Progress("pushing manifest")
            await client.ask(
                "PUT",
                client.url(f"{repository}/manifests/{name.revision or found.name.tag}"),
                {"Content-Type": found.manifest.media_type},
                found.data,
            )
        except RemoteError as error:
            raise PushError(str(error)) from error
    yield Progress("success")


async def _push_blob(
    client: RegistryClient, repository: str, found: RawManifest, layer: Layer, access: RegistryAccess
) -> AsyncGenerator[Progress, None]:
    digest = parse_digest(layer.digest)
    file = await in_thread(lambda _: open_blob(found.blobs / blob_file_name(digest)), os.close)
    try:
        if os.fstat(file).st_size != layer.size:
            raise PushError(f"blob {digest} is damaged: it has another size than the manifest says")

        def progress(completed: int) -> Progress:
            status = "pushing " + digest.removeprefix("sha256:")[:12]
            return Progress(status, digest, layer.size or None, min(completed, layer.size) or None)

        upload = BlobUpload(client, repository, digest, file, access.num_streams, access.patience)
        running = asyncio.ensure_future(upload.run(_source(layer)))
        try:
            while not running.done():
                yield progress(upload.completed)
                await asyncio.wait({running}, timeout=PROGRESS_S)
            running.result()
        finally:
            running.cancel()
            await asyncio.wait({running})
            running.cancelled() or running.exception()  # retrieved, or asyncio reports it as forgotten
        yield progress(layer.size)
    finally:
        os.close(file)


def _source(layer: Layer) -> str:
    """The repository that the layer came from, where the registry may have it already."""
    with suppress(InvalidModelName):
        parent = ModelName.parse(layer.origin or "")
        return f"{parent.namespace}/{parent.model}"
    return ""
