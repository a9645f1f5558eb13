"""What a name means at a registry: its manifest, perhaps chosen from a list of manifests for platforms."""

from __future__ import annotations

import hashlib
from typing import Annotated, TypeVar

import msgspec

from puna.registry.digest import Digest, parse_digest
from puna.registry.errors import InvalidDigest, PullError, RemoteError
from puna.registry.remote.client import RegistryClient
from puna.registry.store.manifest import MANIFEST_TYPE, MAX_MANIFEST_BYTES, Manifest

_OCI_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_LIST_TYPES = (
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.index.v1+json",
)
_ACCEPT = ", ".join((MANIFEST_TYPE, _OCI_MANIFEST_TYPE, *_LIST_TYPES))
_MAX_MANIFESTS = 1000
# Constants of every config, whatever the machine: see ModelConfig.
_PLATFORM = ("amd64", "linux")

T = TypeVar("T")

_Word = Annotated[str, msgspec.Meta(max_length=256)]


class _Platform(msgspec.Struct):
    architecture: _Word = ""
    os: _Word = ""


class _Entry(msgspec.Struct, rename="camel"):
    digest: _Word
    media_type: _Word = ""
    platform: _Platform | None = None


class _ManifestList(msgspec.Struct, rename="camel"):
    media_type: _Word = ""
    manifests: Annotated[list[_Entry], msgspec.Meta(max_length=_MAX_MANIFESTS)] | None = None


class RemoteManifest(msgspec.Struct, frozen=True):
    """A manifest, and the bytes that it was read from."""

    manifest: Manifest
    data: bytes


async def fetch_manifest(client: RegistryClient, repository: str, reference: str) -> RemoteManifest:
    """What `reference`, a tag or a digest, names. Raises PullError, AccessDenied, SigningKeyError."""
    try:
        data = await _read(client, repository, reference)
        manifests = _decode(data, _ManifestList)
        if manifests.media_type in _LIST_TYPES or manifests.manifests:
            if ":" in reference:
                raise RemoteError("this is the digest of a list of manifests, not of a model")
            data = await _read(client, repository, _chosen(manifests.manifests or []))
        manifest = _decode(data, Manifest)
        for layer in manifest.blobs:
            parse_digest(layer.digest)
    except (RemoteError, InvalidDigest) as error:
        raise PullError(f"pull model manifest: {error}") from error
    return RemoteManifest(manifest, data)


async def _read(client: RegistryClient, repository: str, reference: str) -> bytes:
    data, _ = await client.read_manifest(repository, reference, _ACCEPT, MAX_MANIFEST_BYTES)
    if ":" in reference:
        digest = parse_digest(reference)
        if (actual := "sha256:" + hashlib.sha256(data).hexdigest()) != digest:
            raise RemoteError(f"digest mismatch: want {digest}, got {actual}")
    return data


def _chosen(manifests: list[_Entry]) -> Digest:
    """The first of our platform, else the first that is of none or of any."""
    ours = [entry for entry in manifests if entry.platform and _platform(entry.platform) == _PLATFORM]
    found = ours or [entry for entry in manifests if not entry.platform] or manifests
    if not found:
        raise RemoteError("the list of manifests is empty")
    return parse_digest(found[0].digest)


def _platform(platform: _Platform) -> tuple[str, str]:
    return platform.architecture, platform.os


def _decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteError(f"the registry sends no manifest: {error}") from error
