"""What the second engine's worker is started with, and what it asks its launcher."""

from __future__ import annotations

import msgspec

from puna.backends.base import CannotSee, ModelLoadError
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.worker.cage import CageLevel
from puna.worker.calls import Call, Crossing
from puna.worker.engine.messages import Ready, ToWorker

CROSSING: Crossing = (ModelDoesNotFit, CannotSee, ModelLoadError)
PROGRAM_VARIABLE = "PUNA_SERVER_PROGRAM"
"""Of a launcher's environment: what it is to become, said before its worker reads anything of strangers."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the server of one model is run."""

    program: str
    """Absolute path of a llama-server; empty: the one in the xllamacpp package."""
    arguments: list[str] = []
    """More of its own, after ours."""
    directory: str
    """In which its socket has a directory of its own for as long as it takes to open it."""
    context_length: int
    """Wanted, of a request, in tokens: a model's own limit is not exceeded."""
    num_slots: int
    """Requests that are computed at once. The memory for the context of all is reserved."""
    num_threads: int | None = None
    """That compute; None: one for each core."""
    kv_type: str
    max_queue: int = 512
    """Requests that may wait for a slot."""
    debug: bool = False
    """Whether what the server says goes to the log."""
    num_gpu_layers: int | None = None
    """None: as the server chooses."""


class StartServer(Call[Ready], frozen=True, tag=True):
    """The first message. The server itself is started when its model comes."""

    settings: ServerSettings


ToServerWorker = StartServer | ToWorker


class Launch(Call[CageLevel], frozen=True, tag=True):
    """Comes with the model's file, and its projector's if it is to see. Answered when the launcher is caged,
    and about to become the server.
    """

    settings: ServerSettings
    total_context: int
    """Of all slots together."""
    num_threads: int
    is_embedding: bool
    """Whether it is to give embeddings, and no text."""
