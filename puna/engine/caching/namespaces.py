"""Namespaces of KV: only requests with the same salt share it."""

from __future__ import annotations

import secrets

from blake3 import blake3

from puna.kv.state_key import KEY_BYTES, derive_key

_DIGEST_BYTES = 16


class Namespaces:
    """Names for salts, so that nothing that outlives a request contains the salt itself."""

    def __init__(self, key: bytes | None) -> None:
        """key: the same key gives the same names; None: a key of its own."""
        self._key = derive_key(secrets.token_bytes(KEY_BYTES) if key is None else key, b"salts")

    def of(self, salt: str) -> str:
        """Empty without a salt."""
        if not salt:
            return ""
        return blake3(salt.encode(errors="surrogatepass"), key=self._key).hexdigest(length=_DIGEST_BYTES)
