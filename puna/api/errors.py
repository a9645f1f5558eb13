"""What clients are told when something goes wrong: one table from exceptions to status and text."""

from __future__ import annotations

import logging

from puna.backends.base import CannotSee, ModelLoadError
from puna.chat.errors import PromptError, TemplateError
from puna.daemon.busy import ServerBusy
from puna.engine.offload.session_status import SessionError, UnknownSession
from puna.engine.request import GenerationError
from puna.gguf import GgufError
from puna.kv.files.session_manifest import InvalidSessionName, SavedSessionError, SavedSessionMismatch
from puna.registry import (
    CreationError,
    DigestMismatch,
    InvalidDigest,
    InvalidModelName,
    MissingBlob,
    ModelNotFound,
    ReadOnlyModel,
    RegistryError,
)
from puna.tokenizer import TokenizerError
from puna.worker.call_client import WorkerDied

log = logging.getLogger(__name__)

_RETRY_AFTER_S = 1


class ApiError(Exception):
    """A request that cannot be answered: HTTP status, and the text for the client.

    retry_after_s: when it may be worth to try again.
    """

    def __init__(self, status: int, text: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.retry_after_s = retry_after_s


# The first class that an error is an instance of decides; its own text is fit for the client.
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (PromptError, 400),
    (CannotSee, 400),
    (InvalidModelName, 400),
    (InvalidDigest, 400),
    (DigestMismatch, 400),
    (CreationError, 400),
    (ReadOnlyModel, 403),
    (ModelNotFound, 404),
    (InvalidSessionName, 400),
    (UnknownSession, 404),
    (SessionError, 409),
    (SavedSessionMismatch, 409),
    (SavedSessionError, 500),
    (MissingBlob, 500),
    (RegistryError, 500),
    (ServerBusy, 503),
    (ModelLoadError, 500),
    (WorkerDied, 500),
    (GenerationError, 500),
    (GgufError, 500),
    (TemplateError, 500),
    (TokenizerError, 500),
)


def to_api_error(error: Exception) -> ApiError:
    """Status and text for any error; one that nobody foresaw becomes a plain 500. Logs why it is a 500."""
    known = _known(error)
    if known is not None:
        if known.status == 500:
            log.warning("a request failed: %s", known.text)
        return known
    log.error("unexpected error in a request", exc_info=error)
    return ApiError(500, "internal server error")


def _known(error: Exception) -> ApiError | None:
    if isinstance(error, ApiError):
        return error
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), None)
    if status is None:
        return None
    return ApiError(status, str(error), retry_after_s=_RETRY_AFTER_S if status == 503 else None)
