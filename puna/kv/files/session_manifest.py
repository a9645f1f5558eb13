"""The manifest of a saved session: its tokens, the identity of its KV, and its blocks.

All integers are little-endian. A MAC is the keyed BLAKE3 of all that comes before it, other MACs left out; so
the tokens are sound only behind their header. Blocks are named after the tokens, see block_files.

    magic, version, bytes of the header, name of the key | header, as JSON | MAC
    token ids, int32 | MAC
"""

from __future__ import annotations

import hmac
import os
import re
import struct
from datetime import datetime
from typing import Annotated

import msgspec
from blake3 import blake3

from puna.kv.blocks import BLOCK_TOKENS, blocks_for
from puna.kv.files.block_files import HEADER_BYTES, TOKEN_BYTES
from puna.kv.files.identity import KvIdentity, first_needed_block
from puna.kv.files.state_key import derive_key

VERSION = 3
"""Changes with the format. Before 3, a session was one file."""

_MAGIC = b"puna-kv\0"
_MAC_BYTES = 32
_KEY_NAME_BYTES = 8
_PREFIX = struct.Struct(f"<8sII{_KEY_NAME_BYTES}s")
_MAX_HEADER_BYTES = 64 << 10
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


class SavedSessionError(RuntimeError):
    """A session that cannot be written to files, or read from them; the text says why."""


class SavedSessionMismatch(SavedSessionError):
    """A sound session, but of another kind of KV; the text says what differs."""


class InvalidSessionName(ValueError):
    """A name that could not be part of a file's name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f'session name "{name}" is invalid: it must have 1 to 64 letters, digits, ".", "_" or "-", '
            'and start with a letter, a digit or "_"'
        )


def check_session_name(name: str) -> None:
    """Raises InvalidSessionName."""
    if not _NAME.fullmatch(name):
        raise InvalidSessionName(name)


class SessionHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a manifest."""

    kv: KvIdentity
    kernels: str
    """What computed the KV."""
    name: str
    namespace: str
    """Of the prefix cache: the part that the tokens belong to."""
    num_tokens: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    created_at: Annotated[datetime, msgspec.Meta(tz=True)]

    @property
    def first_blocks(self) -> list[int]:
        """Of each group: what is needed behind the last full block. A partial one is copied. The state of
        recurrent layers goes with the last.
        """
        num_full, last = self.num_tokens // BLOCK_TOKENS, blocks_for(self.num_tokens) - 1
        return [last if group.is_state else first_needed_block(group, num_full) for group in self.kv.groups]

    @property
    def num_bytes(self) -> int:
        """In its block files."""
        end = blocks_for(self.num_tokens)
        groups = zip(self.kv.groups, self.first_blocks, strict=True)
        return sum((end - first) * (HEADER_BYTES + group.block_bytes) for group, first in groups)

    def require(self, kv: KvIdentity) -> None:
        """Raises SavedSessionMismatch, which names the first difference to `kv`."""
        for field, words in _FIELD_NAMES.items():
            ours, theirs = getattr(kv, field), getattr(self.kv, field)
            if ours != theirs:
                raise SavedSessionMismatch(
                    f"the session was saved with another {words}: {theirs}, not {ours}"
                )


_FIELD_NAMES = {
    "model_id": "model",
    "kv_type": "KV cache type",
    "groups": "kind of layers",
    "block_tokens": "number of tokens in a block",
}


def write_manifest(descriptor: int, state_key: bytes, header: SessionHeader, tokens: bytes) -> None:
    """Fills an empty file. tokens: int32 [num_tokens]. Raises SavedSessionError, OSError."""
    encoded = msgspec.json.encode(header)
    if len(encoded) > _MAX_HEADER_BYTES:
        raise SavedSessionError(
            f"the session's header has {len(encoded)} bytes, more than {_MAX_HEADER_BYTES}"
        )
    key = derive_key(state_key, b"sessions")
    mac = blake3(key=key)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        for part in (_PREFIX.pack(_MAGIC, VERSION, len(encoded), _key_name(key)) + encoded, tokens):
            file.write(part)
            file.write(mac.update(part).digest())


def read_header(descriptor: int, state_key: bytes, label: str) -> SessionHeader:
    """As read_manifest(), of which it only looks at the beginning and the size."""
    return _read_header(descriptor, state_key, label)[0]


def read_manifest(descriptor: int, state_key: bytes, label: str) -> tuple[SessionHeader, bytes]:
    """Header and tokens, int32 [num_tokens]. Nothing is believed before its MAC has been compared.

    label: what errors call the session. Raises SavedSessionError, OSError.
    """
    header, end, mac = _read_header(descriptor, state_key, label)
    num_bytes = TOKEN_BYTES * header.num_tokens
    part = os.pread(descriptor, num_bytes + _MAC_BYTES, end)
    tokens = part[:num_bytes]
    _compare_mac(part[num_bytes:], mac.update(tokens), label, "tokens")
    return header, tokens


def _read_header(descriptor: int, state_key: bytes, label: str) -> tuple[SessionHeader, int, blake3]:
    """The header, where it ends, and the MAC up to there."""
    key = derive_key(state_key, b"sessions")
    data = os.pread(descriptor, _PREFIX.size + _MAX_HEADER_BYTES + _MAC_BYTES, 0)
    if len(data) < _PREFIX.size:
        raise SavedSessionError(f"{label} is truncated")
    magic, version, header_bytes, key_name = _PREFIX.unpack_from(data)
    if magic != _MAGIC:
        raise SavedSessionError(f"{label} is not a saved session")
    if version != VERSION:
        raise SavedSessionError(f"{label} has version {version} of the format, known is {VERSION}")
    if key_name != _key_name(key):
        raise SavedSessionError(
            f"{label} was saved with another key: a session can be loaded only by who saved it"
        )
    if header_bytes > _MAX_HEADER_BYTES:
        raise SavedSessionError(f"{label} is corrupt: a header of {header_bytes} bytes")
    end = _PREFIX.size + header_bytes
    mac = blake3(data[:end], key=key)
    _compare_mac(data[end : end + _MAC_BYTES], mac, label, "header")
    try:
        header = msgspec.json.decode(data[_PREFIX.size : end], type=SessionHeader)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SavedSessionError(f"{label} is corrupt: {error}") from error
    end += _MAC_BYTES
    expected, actual = end + TOKEN_BYTES * header.num_tokens + _MAC_BYTES, os.fstat(descriptor).st_size
    if actual != expected:  # before anybody makes room for what the header promises
        state = "truncated" if actual < expected else "corrupt"
        raise SavedSessionError(f"{label} is {state}: {actual} bytes instead of {expected}")
    return header, end, mac


def _compare_mac(given: bytes, mac: blake3, label: str, part: str) -> None:
    if not hmac.compare_digest(given, mac.digest()):
        raise SavedSessionError(f"{label} is corrupt, or was changed: the MAC of its {part} is wrong")


def _key_name(key: bytes) -> bytes:
    return derive_key(key, b"name")[:_KEY_NAME_BYTES]
