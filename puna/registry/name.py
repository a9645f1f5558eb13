"""Names of models: `[scheme://][host/][namespace/]model[:tag][@sha256:digest]`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from puna.registry.digest import Digest, blob_file_name, parse_digest
from puna.registry.errors import InvalidDigest, InvalidModelName

DEFAULT_HOST = "registry.ollama.ai"
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"

# Every part becomes one component of a path in the store. None can start with a dot or hold a slash, so
# no name leads out of the store.
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}")
_NAMESPACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}")
_MODEL = _TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
_REVISION_TAG = re.compile(r"sha256-[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ModelName:
    """A complete name. Case is kept, but names that differ only in case mean the same model (see `key`)."""

    host: str
    namespace: str
    model: str
    tag: str
    scheme: str = field(default="https", compare=False)
    """How the host is to be spoken to; the same model has the same name either way."""

    @classmethod
    def parse(cls, text: str) -> ModelName:
        """The name that `text`, as a user typed it, stands for; raises InvalidModelName.

        This is the only way from text to a name, for the daemon and the command line alike.
        `pypi:<package>` is nothing special here: model `pypi`, tag `<package>`. A digest takes the tag's
        place, as `sha256-<hex>`: whatever the tag means by now, that revision is meant.
        """
        rest, has_pin, pin = text.strip().partition("@")
        tag = DEFAULT_TAG
        if rest.rfind(":") > rest.rfind("/"):
            rest, _, tag = rest.rpartition(":")
        rest, has_namespace, model = rest.rpartition("/")
        host, has_host, namespace = rest.rpartition("/")
        scheme = re.match(r"(https?)://", host)
        name = cls(
            host.removeprefix(scheme[0] if scheme else "") if has_host else DEFAULT_HOST,
            namespace if has_namespace else DEFAULT_NAMESPACE,
            model,
            tag,
            scheme[1] if scheme else "https",
        )
        if not name._is_valid():
            raise InvalidModelName(text)
        return name._pinned(text, pin) if has_pin else name

    def _pinned(self, text: str, pin: str) -> ModelName:
        try:
            if pin.startswith("sha256:"):
                return replace(self, tag=blob_file_name(parse_digest(pin)))
        except InvalidDigest:
            pass
        raise InvalidModelName(text)

    def _is_valid(self) -> bool:
        patterns = (_HOST, _NAMESPACE, _MODEL, _TAG)
        return all(pattern.fullmatch(part) for pattern, part in zip(patterns, self.parts, strict=True))

    @classmethod
    def from_parts(cls, parts: tuple[str, ...]) -> ModelName | None:
        """The name whose manifest lies at these four path components, or None if there is no such name."""
        name = cls(*parts)
        return name if name._is_valid() else None

    @property
    def parts(self) -> tuple[str, str, str, str]:
        """Path components of the manifest."""
        return self.host, self.namespace, self.model, self.tag

    @property
    def revision(self) -> Digest | None:
        """The digest that the manifest has to have; None: that of any revision."""
        return parse_digest(self.tag) if _REVISION_TAG.fullmatch(self.tag) else None

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for names that mean the same model."""
        return tuple(part.lower() for part in self.parts)

    @property
    def short(self) -> str:
        """What users see: default host and namespace dropped, the tag always there."""
        name = f"{self.model}:{self.tag}"
        if self.host != DEFAULT_HOST:
            return f"{self.host}/{self.namespace}/{name}"
        return name if self.namespace == DEFAULT_NAMESPACE else f"{self.namespace}/{name}"

    def __str__(self) -> str:
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}"
