"""The key that registries know this machine by: Ollama's `~/.ollama/id_ed25519`, in OpenSSH's format."""

from __future__ import annotations

import base64
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from puna.registry.errors import SigningKeyError
from puna.registry.store.files.regular_file import read_regular

_MAX_BYTES = 64 << 10


def make_key(path: Path) -> None:
    """Makes the key, and its public half beside it, if there is none; never replaces one. Raises OSError."""
    if path.exists():
        return
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):  # another daemon was faster: its key stays
        _write_new(path, private)
        public_path = path.with_name(path.name + ".pub")
        public_path.unlink(missing_ok=True)  # of a key that is gone
        _write_new(public_path, public + b"\n", mode=0o644)


def sign(path: Path, data: bytes) -> str:
    """`<public key>:<signature>`, both in base64, as Ollama's registry wants it. Raises SigningKeyError."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = serialization.load_ssh_private_key(read_regular(path, _MAX_BYTES), None)
    except OSError as error:
        raise SigningKeyError(f"cannot read the key ~/.ollama/{path.name}: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SigningKeyError(f"~/.ollama/{path.name} is no OpenSSH key without a passphrase") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyError(f"~/.ollama/{path.name} is no ed25519 key")
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{public.split()[1].decode()}:{base64.b64encode(key.sign(data)).decode()}"


def _write_new(path: Path, data: bytes, mode: int = 0o600) -> None:
    """The whole file or none. Raises FileExistsError, OSError."""
    descriptor, name = tempfile.mkstemp(prefix=".puna-", dir=path.parent)  # with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(path).hardlink_to(name)
    finally:
        Path(name).unlink()
