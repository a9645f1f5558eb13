"""Which llama.cpp server there is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from puna.worker.llamacpp.wheel import is_installed

PROGRAM = "llama-server"
HOW_TO_GET_ONE = (
    f"llama.cpp may run it: put its {PROGRAM} on PATH, name one in PUNA_LLAMA_SERVER, "
    'or pip install "puna[llamacpp]"'
)


class FoundServer(NamedTuple):
    """A server that can be started."""

    program: str
    """Its path; empty: it is in the xllamacpp package."""

    @property
    def description(self) -> str:
        return self.program or "the xllamacpp package"


class NoServer(LookupError):
    """The text says why, or how to get one."""


def find_server(configured: Path | None) -> FoundServer:
    """configured: what PUNA_LLAMA_SERVER says. Raises NoServer."""
    if configured is not None:
        if not (configured.is_file() and os.access(configured, os.X_OK)):
            raise NoServer(f"PUNA_LLAMA_SERVER: {configured} is no program")
        return FoundServer(str(configured.absolute()))
    # A relative one depends on where the daemon was started, which may be anybody's directory.
    if (found := shutil.which(PROGRAM)) and Path(found).is_absolute():
        return FoundServer(found)
    if is_installed():
        return FoundServer("")
    raise NoServer(HOW_TO_GET_ONE)
