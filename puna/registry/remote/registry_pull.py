"""Pulling a model from its registry: its manifest, then every blob that is not there, then the manifest's
file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import NamedTuple

import httpx

from puna.config.settings import Settings
from puna.registry.digest import parse_digest
from puna.registry.errors import AccessDenied, DigestMismatch, PullError
from puna.registry.in_thread import in_thread
from puna.registry.name import ModelName
from puna.registry.progress import Progress
from puna.registry.remote.addresses import sources_of
from puna.registry.remote.client import STALL_S, RegistryClient, connect
from puna.registry.remote.download import NUM_STREAMS, BlobDownload, Patience
from puna.registry.remote.manifests import fetch_manifest
from puna.registry.store.blob_holds import BlobHolds
from puna.registry.store.files.free_space import check_free_space
from puna.registry.store.files.reported import reported
from puna.registry.store.manifest import Layer, Manifest
from puna.registry.store.origin import Origin, read_origin
from puna.registry.store.part_files import completed_bytes, partial_path
from puna.registry.store.partial_blob import PartialBlob
from puna.registry.store.store import Store

log = logging.getLogger(__name__)

PROGRESS_S = 0.06
"""Between two looks at how far a transfer is."""
_MAX_LAYERS = 500
_WAIT_S = 0.25
"""Between looks at a download of somebody else."""


class RegistryAccess(NamedTuple):
    """How registries are spoken to."""

    key: Path
    """That requests are signed with."""
    insecure: bool = False
    """Without TLS."""
    mirrors: tuple[tuple[str, str], ...] = ()
    """(host, URL) that models of the host are rather pulled from."""
    prunes: bool = True
    """Whether blobs that only the replaced model had are removed."""
    num_streams: int = NUM_STREAMS
    """That a blob comes in at once."""
    patience: Patience = Patience()
    stall_s: float = STALL_S

    @classmethod
    def of(cls, settings: Settings, *, insecure: bool = False) -> RegistryAccess:
        """As the environment has it."""
        return cls(
            settings.registry_key,
            insecure,
            settings.mirrors,
            not settings.no_prune,
            settings.max_transfer_streams or NUM_STREAMS,
        )


async def pull_from_registry(
    store: Store, name: ModelName, access: RegistryAccess
) -> AsyncGenerator[Progress, None]:
    """From the first of its registry's mirrors that can give it, else from the registry itself.

    Raises PullError, StoreError, AccessDenied, SigningKeyError, InsecureProtocol, InvalidModelName.
    """
    *mirrors, own = sources_of(name, access.mirrors, insecure=access.insecure)
    for mirror in mirrors:
        try:
            async with aclosing(_pull_from(mirror, store, name, access)) as statuses:
                async for progress in statuses:
                    yield progress
            return
        except (PullError, AccessDenied) as error:
            log.warning("%s from %s: %s", name, mirror.host, error)
    async with aclosing(_pull_from(own, store, name, access)) as statuses:
        async for progress in statuses:
            yield progress


async def _pull_from(
    base: httpx.URL, store: Store, name: ModelName, access: RegistryAccess
) -> AsyncGenerator[Progress, None]:
    repository = f"{name.namespace}/{name.model}"
    with BlobHolds() as holds:
        async with await connect(base, access.key, access.stall_s) as client:
            found = await fetch_manifest(client, repository, name.revision or name.tag)
            _check_usable(found.manifest)
            await asyncio.to_thread(_check_room, store, found.manifest)
            for layer in (*found.manifest.layers, found.manifest.config):
                async with aclosing(_pull_blob(store, holds, client, repository, layer, access)) as statuses:
                    async for progress in statuses:
                        yield progress
        yield Progress("verifying sha256 digest")
        yield Progress("writing manifest")
        await asyncio.to_thread(
            _record_origin, store, found.manifest, Origin(f"registry:{name}", url=str(base))
        )
        replaced = await asyncio.to_thread(store.write_manifest, name, found.manifest, found.data)
    unused = await asyncio.to_thread(store.remove_unused_blobs, replaced if access.prunes else [])
    if unused:
        yield Progress("removing unused layers")


def _record_origin(store: Store, manifest: Manifest, origin: Origin) -> None:
    weights = next(parse_digest(layer.digest) for layer in manifest.layers if layer.kind == "model")
    if read_origin(store.root, weights) is None:  # where they came from first is where they came from
        store.write_origin(weights, origin)


def _check_usable(manifest: Manifest) -> None:
    kinds = [layer.kind for layer in manifest.layers]
    if len(kinds) > _MAX_LAYERS:
        raise PullError(f"pull model manifest: the model has {len(kinds)} layers, more than any")
    if kinds.count("model") != 1:
        other = "a layer for each tensor" if "tensor" in kinds else f"{kinds.count('model')} GGUF files"
        raise PullError(f"pull model manifest: the model has {other}, where puna needs one GGUF file")


def _check_room(store: Store, manifest: Manifest) -> None:
    """Raises StoreError if what is missing would fill the disk."""
    with reported("cannot write to the store"):
        store.blobs.mkdir(parents=True, exist_ok=True)
        missing = 0
        for layer in {parse_digest(layer.digest): layer for layer in manifest.blobs}.values():
            if not _is_there(store, layer):
                there = completed_bytes(partial_path(store.blob_path(layer.digest)))
                missing += max(layer.size - there, 0)
    check_free_space(store.blobs, missing)


def _is_there(store: Store, layer: Layer) -> bool:
    try:
        return store.has_blob(layer.digest) and store.blob_path(layer.digest).stat().st_size == layer.size
    except OSError:
        return False


async def _pull_blob(
    store: Store,
    holds: BlobHolds,
    client: RegistryClient,
    repository: str,
    layer: Layer,
    access: RegistryAccess,
) -> AsyncGenerator[Progress, None]:
    digest = parse_digest(layer.digest)

    def progress(completed: int) -> Progress:
        status = "pulling " + digest.removeprefix("sha256:")[:12]
        return Progress(status, digest, layer.size or None, min(completed, layer.size) or None)

    while not await in_thread(lambda _: holds.hold(store.blob_path(digest), layer.size)):
        blob = await in_thread(lambda _: PartialBlob.open(store.blobs, digest, layer.size), _let_go)
        if blob is None:  # another pull fetches it; if that one ends early, this one goes on
            yield progress(await asyncio.to_thread(completed_bytes, partial_path(store.blob_path(digest))))
            await asyncio.sleep(_WAIT_S)
            continue
        with blob:
            if await asyncio.to_thread(_is_there, store, layer):
                await asyncio.to_thread(blob.discard)
                continue
            download = asyncio.ensure_future(
                BlobDownload(client, repository, blob, access.num_streams, access.patience).run()
            )
            try:
                while not download.done():
                    yield progress(blob.completed)
                    await asyncio.wait({download}, timeout=PROGRESS_S)
                _check(download)
            finally:
                download.cancel()
                await asyncio.wait({download})
                download.cancelled() or download.exception()  # retrieved, or asyncio reports it as forgotten
    yield progress(layer.size)


def _let_go(blob: PartialBlob | None) -> None:
    if blob is not None:
        blob.close()


def _check(download: asyncio.Future[None]) -> None:
    try:
        download.result()
    except DigestMismatch as error:
        raise PullError(
            f"digest mismatch, file must be downloaded again: want {error.expected}, got {error.actual}"
        ) from error
