"""Digests: `sha256:` and 64 lower-case hexadecimal digits; blobs are named by them."""

from __future__ import annotations

import re
from typing import NewType

from puna.registry.errors import InvalidDigest

Digest = NewType("Digest", str)

_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")


def parse_digest(text: str) -> Digest:
    """Accepts `sha256:<hex>` and `sha256-<hex>`; raises InvalidDigest."""
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise InvalidDigest(text)
    return Digest("sha256:" + match[1].lower())


def blob_file_name(digest: Digest) -> str:
    """Name of the blob's file: a colon is not allowed in file names everywhere, so a dash."""
    return digest.replace(":", "-")
