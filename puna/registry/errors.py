"""What can go wrong with names, the store and its sources; every text can be shown to any client as it is:
where the store is, is none of their business.
"""

from __future__ import annotations

from pathlib import Path

_NAME_PARTS = 4
"""Host, namespace, model and tag: what a manifest's path ends with."""


class RegistryError(Exception):
    """Base of the errors of this room."""


class InvalidModelName(RegistryError, ValueError):
    """The text does not follow the grammar of model names; `name` is what was given."""

    def __init__(self, name: str) -> None:
        super().__init__("invalid model name")
        self.name = name


class ModelNotFound(RegistryError):
    """No manifest has this name."""

    def __init__(self, name: str) -> None:
        """name: its short form."""
        super().__init__(f"model '{name}' not found")
        self.name = name


class ReadOnlyModel(RegistryError):
    """The model lies in a store that puna reads but never writes."""


class CorruptManifest(RegistryError):
    """A manifest, or a small blob that it names, cannot be used; the text says which and why."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"manifest {'/'.join(path.parts[-_NAME_PARTS:])}: {reason}")
        self.path = path


class MissingBlob(RegistryError):
    """A blob is not in the store."""

    def __init__(self, digest: str) -> None:
        super().__init__(f'blob "{digest}" not found')
        self.digest = digest


class InvalidDigest(RegistryError, ValueError):
    """Not `sha256:` (or `sha256-`) and 64 hexadecimal digits."""

    def __init__(self, text: str) -> None:
        super().__init__("invalid digest format")
        self.text = text


class DigestMismatch(RegistryError):
    """The bytes received are not the bytes announced."""

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(f'digest mismatch, expected "{expected}", got "{actual}"')
        self.expected = expected
        self.actual = actual


class StoreError(RegistryError):
    """The file system refused (disk full, no permission); nothing half-written is left."""


class UnsupportedModel(RegistryError):
    """The model has parts that puna cannot use and that may not be left out."""


class PullError(RegistryError):
    """A source does not have the model, or what it has cannot be used."""


class PushError(RegistryError):
    """A registry does not take a model."""


class InsecureProtocol(RegistryError):
    """A name asks for a registry without TLS, which is only spoken to if the request says so as well."""

    def __init__(self) -> None:
        super().__init__("insecure protocol http")


class AccessDenied(RegistryError):
    """A registry wants somebody else, or nobody at all, to do this."""

    def __init__(self, reason: str = "access denied") -> None:
        super().__init__(f"unauthorized: {reason}")


class SigningKeyError(RegistryError):
    """Requests cannot be signed with the key that registries know this machine by."""


class RemoteError(RegistryError):
    """A registry refuses, cannot be reached, or says what cannot be."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        """status: the HTTP status with which it refused."""
        super().__init__(reason)
        self.status = status


class CreationError(RegistryError):
    """What is asked for makes no model."""


class QuantizationError(RegistryError):
    """Weights cannot be quantized so."""
