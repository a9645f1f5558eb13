"""What a registry has: files of blobs, and manifests."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from puna.registry.store.manifest import CONFIG_TYPE, LAYER_TYPE, MANIFEST_TYPE, Layer, Manifest


class Contents:
    """Blobs as files in `directory`, manifests in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifests: dict[tuple[str, str], tuple[bytes, str]] = {}
        """(bytes, media type) by repository and reference."""
        directory.mkdir(parents=True, exist_ok=True)

    def blob(self, digest: str) -> Path:
        return self.directory / digest.replace(":", "-")

    def add_blob(self, data: bytes) -> str:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        self.blob(digest).write_bytes(data)
        return digest

    def add_manifest(self, repository: str, tag: str, data: bytes, kind: str = MANIFEST_TYPE) -> str:
        """Under its tag and its digest, which is returned."""
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        for reference in (tag, digest):
            self.manifests[repository, reference] = (data, kind)
        return digest

    def add_model(self, repository: str, tag: str = "latest", **layers: bytes) -> Manifest:
        """With layers by kind; add_model("library/m", model=b"GGUF...", template=b"...")."""
        config = b'{"model_format":"gguf","model_family":"llama","model_type":"2K","file_type":"F32"}'
        manifest = Manifest(
            config=Layer(CONFIG_TYPE, self.add_blob(config), len(config)),
            layers=[
                Layer(LAYER_TYPE + kind, self.add_blob(data), len(data)) for kind, data in layers.items()
            ],
        )
        # With a blank that no encoder of ours writes: manifests are to be kept as they are.
        self.add_manifest(repository, tag, msgspec.json.encode(manifest) + b"\n")
        return manifest
