"""What making models takes of the daemon: its text workers, its converter, its pulls."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from puna.registry.creation.description import WeightsDescription
from puna.registry.name import ModelName
from puna.registry.progress import Progress


class Conversion(NamedTuple):
    """See puna.convert.job.ConvertJob."""

    kind: Literal["safetensors", "adapter", "gguf"]
    quantize: str
    status: str
    """What people are told meanwhile."""
    base: int | None = None
    """Descriptor of the GGUF file that an adapter is for."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Descriptors stay the caller's. Closing a generator ends what it stands for."""

    describe: Callable[[int], Awaitable[WeightsDescription]]
    """Reads a GGUF file; raises GgufError."""
    check_templates: Callable[[str, str, str], Awaitable[None]]
    """Go template, renderer, parser; each may be empty. Raises CreationError for what cannot be used."""
    convert: Callable[[Mapping[str, int], int, Conversion], AsyncGenerator[Progress, None]]
    """Reads files by their names, writes a GGUF file; raises CreationError."""
    pull: Callable[[ModelName], AsyncGenerator[Progress, None]]
    """Brings a model into the store."""
    prunes: bool = True
