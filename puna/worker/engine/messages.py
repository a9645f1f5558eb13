"""Messages between the daemon and an engine worker; more in puna.worker.calls."""

from __future__ import annotations

import msgspec

from puna.backends.base import CannotSee, ModelInfo, ModelLoadError, UnsupportedModelFile
from puna.engine.memory.load_errors import ModelDoesNotFit
from puna.engine.memory.offers import Offer, Short
from puna.engine.observation.stats import EngineStats
from puna.engine.observation.trace import EngineTrace
from puna.engine.offload.session_status import SessionError, SessionStatus, UnknownSession
from puna.engine.request import Request, StepOutput
from puna.engine.settings import EngineSettings
from puna.kv.files.session_manifest import SavedSessionError, SavedSessionMismatch
from puna.kv.limits import Limits
from puna.worker.cage import CageLevel
from puna.worker.calls import Call, Crossing

CROSSING: Crossing = (
    ModelDoesNotFit,
    UnsupportedModelFile,
    CannotSee,
    ModelLoadError,
    UnknownSession,
    SessionError,
    SavedSessionMismatch,
    SavedSessionError,
)


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a new worker."""

    engine: EngineSettings = EngineSettings()
    num_threads: int | None = None
    """That compute; None: one for each core."""
    kv_type: str = "f16"
    """The type in which keys and values are stored."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The engine is there: what it has found to work with."""

    kv_limit_bytes: int
    memory_limit_bytes: int
    cage: CageLevel


class Start(Call[Ready], frozen=True, tag=True):
    """The first message. Raises CallFailed for settings that make no engine."""

    settings: WorkerSettings


class Load(Call[ModelInfo], frozen=True, tag=True):
    """Comes with the descriptors of the model's file; for llama.cpp's server, with that of an empty file,
    too. Raises ModelLoadError, ModelDoesNotFit, CannotSee.
    """

    model_id: str
    name: str
    """For error texts."""
    share: float = 1.0
    """Of the device while other models are busy, too, relative to theirs."""
    guaranteed_kv_bytes: int = 0
    """KV memory that no other model takes."""
    sees: bool = False
    """Then the last descriptor is of the file that its projector is in; only for llama.cpp's server."""
    has_drafter: bool = False
    """Then the last descriptor is of what the model brings along to draft; only for the engine."""


class LoadAdapter(Call[int], frozen=True, tag=True):
    """Comes with the descriptor of a LoRA adapter's file, for a model that is loaded. Answered with the bytes
    that it takes. Raises ModelLoadError, ModelDoesNotFit.
    """

    model_id: str
    adapter_id: str
    name: str
    """For error texts."""


class UnloadAdapter(Call[None], frozen=True, tag=True):
    """Requests that use it finish with an error."""

    model_id: str
    adapter_id: str


class Hold(msgspec.Struct, frozen=True, tag=True):
    """Whether requests may come to a model: if not, it may fall asleep to make room for others, and its next
    request wakes it. One that was just loaded or woken is held.
    """

    model_id: str
    is_held: bool


class SetVocabulary(Call[None], frozen=True, tag=True):
    """Comes with the model's token table and its vocabulary, in sealed memory: from now on replies have text,
    and may have grammars, also after a sleep. Raises ModelLoadError.
    """

    model_id: str


class Unload(Call[None], frozen=True, tag=True):
    """Answered after the model's last use; its requests finish with an error."""

    model_id: str


class Sleep(Call[None], frozen=True, tag=True):
    """The model gives back its KV memory, and lets the system take its weights."""

    model_id: str


class Wake(Call[ModelInfo], frozen=True, tag=True):
    """Raises ModelLoadError; the model then sleeps on."""

    model_id: str


class GetStats(Call[EngineStats], frozen=True, tag=True):
    """The load of the engine."""


class GetTrace(Call[EngineTrace], frozen=True, tag=True):
    """Asks for the engine's latest events."""

    seconds: float | None = None
    """Only in the last ones; None: as far back as it knows."""


class SetLimits(Call[int], frozen=True, tag=True):
    """Of memory, in bytes; None: as before. Answered with how much of what is in use exceeds the new ones."""

    kv_limit_bytes: int | None = None
    memory_limit_bytes: int | None = None
    whole: Limits | None = None
    """What all workers may have together; None: there are no others."""
    reachable: Limits | None = None
    """By how much others could let the limits be raised for what is Short; None: by all that they have."""


class GetOffers(Call[list[Offer]], frozen=True, tag=True):
    """Asks what a worker could give up for one that is Short, cheapest first; nothing is given up."""

    asked: Limits
    order_s: float
    """See Short."""


class GiveUp(Call[Limits], frozen=True, tag=True):
    """Lowers the limits by what was offered of so much, or as much of it as can be given up now. Answered
    with by how much.
    """

    asked: Limits
    order_s: float


class Leased(msgspec.Struct, frozen=True):
    """Whether memory was leased."""

    granted: bool
    available_bytes: int
    """What could be granted now."""


class Lease(Call[Leased], frozen=True, tag=True):
    """Leases memory of the budget for use outside the worker."""

    num_bytes: int
    is_held: bool = False
    """It was granted by an earlier worker, and is counted whatever the limits are."""
    weight_bytes: int = 0
    """More of it, of weights: that counts against the memory limit alone."""


class EndLease(Call[None], frozen=True, tag=True):
    """So much of what was leased is free again."""

    num_bytes: int
    weight_bytes: int = 0


class TrimKv(Call[int], frozen=True, tag=True):
    """Gives back all KV memory that no request needs now. Answered with how many bytes that were."""


class SavePrefixes(Call[None], frozen=True, tag=True):
    """Before the worker ends: what is cached goes to disk."""


class ListSessions(Call[list[SessionStatus]], frozen=True, tag=True):
    """Asks for the sessions that are in memory, or were."""


class EraseModel(Call[None], frozen=True, tag=True):
    """Removes what is kept on disk of a model's cached KV."""

    model_id: str


class SaveSession(Call[None], frozen=True, tag=True):
    """Answered when all is on disk. Raises SessionError, SavedSessionError."""

    model_id: str
    name: str


class LoadSession(Call[None], frozen=True, tag=True):
    """From disk to memory. Raises SessionError, SavedSessionError."""

    model_id: str
    name: str


class RemoveSession(Call[bool], frozen=True, tag=True):
    """From memory. Answered with whether it was there."""

    model_id: str
    name: str


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Brings Outputs with this request's id, until one has a finish_reason."""

    request: Request


class Cancel(msgspec.Struct, frozen=True, tag=True):
    """Of a request; one that is finished is ignored."""

    request_id: str


class Pause(msgspec.Struct, frozen=True, tag=True):
    """The outputs of a request are not read, or again; ignored if the request is finished."""

    request_id: str
    paused: bool


class Outputs(msgspec.Struct, frozen=True, tag=True):
    """An event: everything that one step brought."""

    outputs: list[StepOutput]


EngineEvent = Outputs | Short
SessionMessage = ListSessions | SaveSession | LoadSession | RemoveSession
ToWorker = (
    Start
    | Load
    | LoadAdapter
    | UnloadAdapter
    | Hold
    | SetVocabulary
    | Unload
    | Sleep
    | Wake
    | GetStats
    | GetTrace
    | SetLimits
    | GetOffers
    | GiveUp
    | Lease
    | EndLease
    | TrimKv
    | SavePrefixes
    | EraseModel
    | SessionMessage
    | Submit
    | Cancel
    | Pause
)
