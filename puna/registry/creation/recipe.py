"""What is to be made, as a request says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from puna.registry.digest import Digest
from puna.registry.errors import CreationError, QuantizationError
from puna.registry.name import ModelName
from puna.registry.store.stored_model import StoredMessage

QUANTIZATIONS = (
    *("F32", "F16", "Q4_K_S", "Q4_K_M", "Q8_0", "BF16"),
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q5_K_S", "Q5_K_M", "Q6_K"),
)
"""What weights can be quantized to; the first ones are Ollama's."""
UNQUANTIZED = ("F16", "BF16", "F32")
"""What they must be before."""
MAX_FILES = 512
_ALIASES = {"Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

Files = Mapping[str, Digest]
"""Uploaded blobs by the names of the files that they are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Empty: not asked for, so it is as in the model that this one is made from."""

    name: ModelName
    base: ModelName | None = None
    """The model that it is made from; else it is made of `files`."""
    files: Files = field(default_factory=dict)
    adapters: Files = field(default_factory=dict)
    draft_files: Files = field(default_factory=dict)
    quantize: str = ""
    draft_quantize: str = ""
    template: str = ""
    system: str = ""
    renderer: str = ""
    parser: str = ""
    requires: str = ""
    licenses: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[StoredMessage, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the config that are to be so, whatever the files say."""

    def check(self) -> None:
        """Raises CreationError."""
        if self.base is None and not self.files:
            raise CreationError("neither 'from' or 'files' was specified")
        paths = (*self.files, *self.adapters, *self.draft_files)
        if len(paths) > MAX_FILES:
            raise CreationError(f"{len(paths)} files are more than {MAX_FILES}")
        for path in paths:
            if path.startswith("/") or ".." in path.split("/"):
                raise CreationError("file path must be relative")


def quantization(text: str) -> str:
    """The type that a request means, in upper case; empty: none. Raises QuantizationError."""
    name = _ALIASES.get(text.upper(), text.upper())
    if name and name not in QUANTIZATIONS:
        raise QuantizationError(
            f"unsupported quantization type {name[:40]} - supported types are {', '.join(QUANTIZATIONS)}"
        )
    return name
