"""Namespaces of KV: only requests with the same salt and the same adapter share it."""

from __future__ import annotations

import secrets

from blake3 import blake3

from puna.kv.files.state_key import KEY_BYTES, derive_key

_DIGEST_BYTES = 16


class Namespaces:
    """Names for salts, so that nothing that outlives a request contains the salt itself."""

    def __init__(self, key: bytes | None) -> None:
        """key: the same key gives the same names; None: a key of its own."""
        key = secrets.token_bytes(KEY_BYTES) if key is None else key
        self._of_salts, self._of_adapters = derive_key(key, b"salts"), derive_key(key, b"adapters")

    def of(self, salt: str, adapter: str = "") -> str:
        """adapter: its id. Empty without both."""
        found = _name(self._of_salts, salt) if salt else ""
        return _name(self._of_adapters, f"{found} {adapter}") if adapter else found


def _name(key: bytes, text: str) -> str:
    return blake3(text.encode(errors="surrogatepass"), key=key).hexdigest(length=_DIGEST_BYTES)
